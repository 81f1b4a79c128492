//! Reads HostedClusterIdentities from a file in the formats of `kubectl get -o yaml` and `-o json`.

use std::io::Read;
use std::path::Path;

use lanyard_api::HostedClusterIdentities;
use serde_json::Value;

use crate::exit::{CommandError, ExternalResult as _, ResultExt as _};

/// Loads the identities of a file or of standard input.
pub(super) fn load_identities(path: &Path) -> Result<Vec<HostedClusterIdentities>, CommandError> {
    let (name, text) = if path == Path::new("-") {
        let mut text = String::new();
        ("standard input".to_owned(), std::io::stdin().read_to_string(&mut text).map(|_| text))
    } else {
        (path.display().to_string(), std::fs::read_to_string(path))
    };
    let text = text.or_invalid(format_args!("--input: {name} cannot be read")).hint(INPUT_HINT)?;
    let documents: Vec<Value> = serde_saphyr::from_multiple(&text)
        .or_invalid(format_args!("--input: {name} is neither YAML nor JSON"))
        .hint(INPUT_HINT)?;
    parse(documents).map_err(|problems| {
        let problems = problems.join("\n");
        let message = format!("--input: {name} contains invalid objects\n\n{problems}");
        CommandError::invalid_input(message).with_hint(INPUT_HINT)
    })
}

/// Parses the objects of all documents and lists, or returns every problem with its position.
fn parse(documents: Vec<Value>) -> Result<Vec<HostedClusterIdentities>, Vec<String>> {
    if documents.iter().all(Value::is_null) {
        // For example the output of a command that failed at the other end of a pipe.
        return Err(vec!["the input is empty".to_owned()]);
    }
    let mut found = Vec::new();
    let mut problems = Vec::new();
    for (place, document) in (1..).zip(documents) {
        // A `---` at the start or end of a file produces an empty document.
        if document.is_null() {
            continue;
        }
        for (place, object) in expand_lists(format!("document {place}"), document) {
            match parse_identities(object) {
                Ok(identities) => found.push(identities),
                Err(problem) => problems.push(format!("{place}: {problem}")),
            }
        }
    }
    if problems.is_empty() { Ok(found) } else { Err(problems) }
}

fn expand_lists(place: String, document: Value) -> Vec<(String, Value)> {
    let is_list = kind_of(&document).is_some_and(|kind| kind.ends_with("List"));
    match document {
        Value::Object(mut list) if is_list => {
            let items = match list.remove("items") {
                Some(Value::Array(items)) => items,
                // A value that is not a list is treated as one object, so that its problem is reported.
                other => return vec![(format!("{place}, items"), other.unwrap_or_default())],
            };
            let placed = items.into_iter().enumerate();
            placed.map(|(index, item)| (format!("{place}, items[{index}]"), item)).collect()
        }
        Value::Array(items) => {
            let placed = items.into_iter().enumerate();
            placed.map(|(index, item)| (format!("{place}, [{index}]"), item)).collect()
        }
        other => vec![(place, other)],
    }
}

fn parse_identities(object: Value) -> Result<HostedClusterIdentities, String> {
    let expected = HostedClusterIdentities::KIND;
    match kind_of(&object) {
        Some(kind) if kind == expected => {}
        Some(kind) => return Err(format!("kind is `{kind}`, not `{expected}`")),
        None => return Err(format!("there is no kind; it should be `{expected}`")),
    }
    serde_json::from_value(object).map_err(|error| error.to_string())
}

fn kind_of(object: &Value) -> Option<&str> {
    object.get("kind").and_then(Value::as_str)
}

const INPUT_HINT: &str = "give what `kubectl get hostedclusteridentities -A -o yaml` prints";

#[cfg(test)]
mod tests {
    use super::*;

    fn read_names(text: &str) -> Result<Vec<String>, Vec<String>> {
        let found = parse(serde_saphyr::from_multiple(text).unwrap())?;
        Ok(found.into_iter().filter_map(|it| it.metadata.name).collect())
    }

    const ONE_OBJECT: &str = "kind: HostedClusterIdentities\nmetadata: {name: one}\n";

    #[test]
    fn kubectl_objects_documents_and_lists_are_parsed() {
        assert_eq!(read_names(ONE_OBJECT), Ok(vec!["one".to_owned()]));
        assert_eq!(read_names(&format!("---\n{ONE_OBJECT}---\n{ONE_OBJECT}")).unwrap().len(), 2);
        let json = r#"{"kind": "HostedClusterIdentities", "metadata": {"name": "one"}}"#;
        for kind in ["List", "HostedClusterIdentitiesList"] {
            let list = format!(r#"{{"kind": "{kind}", "items": [{json}, {json}]}}"#);
            assert_eq!(read_names(&list).unwrap().len(), 2, "{kind}");
        }
        assert_eq!(read_names(&format!("[{json}]")).unwrap().len(), 1);
        assert_eq!(read_names(r#"{"kind": "List", "items": []}"#), Ok(vec![]));
    }

    #[test]
    fn empty_input_is_refused() {
        for text in ["", "\n", "---\n", "# nothing\n", "null\n---\n"] {
            assert_eq!(read_names(text).unwrap_err(), ["the input is empty"], "{text:?}");
        }
    }

    #[test]
    fn invalid_objects_are_reported_with_their_position() {
        let text = format!(
            "{ONE_OBJECT}---\nkind: List\nitems:\n- kind: Pod\n- {{}}\n---\nkind: HostedClusterIdentities\nstatus: {{identities: 3}}\n"
        );
        let problems = read_names(&text).unwrap_err();
        assert_eq!(problems.len(), 3, "{problems:?}");
        for list in ["{kind: List}", "{kind: List, items: null}", "{kind: List, items: {}}"] {
            let problems = read_names(list).unwrap_err();
            assert!(problems[0].starts_with("document 1, items: there is no kind"), "{problems:?}");
        }
        assert_eq!(
            problems[0],
            "document 2, items[0]: kind is `Pod`, not `HostedClusterIdentities`"
        );
        assert!(problems[1].starts_with("document 2, items[1]: there is no kind"));
        assert!(problems[2].starts_with("document 3: invalid type"), "{}", problems[2]);
    }
}
