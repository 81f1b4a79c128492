use lanyard_api::crd_definitions;

use super::*;

const FILE: &str = include_str!("../../../../conformance/cases/hosted_cluster.yaml");

fn unexpected_result(case: &SchemaCase) -> Option<String> {
    let found = match &case.updated {
        None => validation_errors(None, &case.initial),
        Some(updated) => {
            let before = validation_errors(None, &case.initial);
            if !before.is_empty() {
                return Some(format!("refused before the update: {before:?}"));
            }
            validation_errors(Some(&case.initial), updated)
        }
    };
    match &case.expected {
        ExpectedValidation::Accepted if found.is_empty() => None,
        ExpectedValidation::Accepted => Some(format!("refused: {found:?}")),
        ExpectedValidation::Rejected { lanyard_messages: ours, .. } => {
            let missing = |text: &&String| !found.iter().any(|it| it.contains(text.as_str()));
            let missing_messages: Vec<_> = ours.iter().filter(missing).collect();
            (!missing_messages.is_empty())
                .then(|| format!("missing messages: {missing_messages:?}, but {found:?}"))
        }
    }
}

#[test]
fn validation_matches_every_schema_case() {
    let cases = parse_cases(FILE).unwrap();
    let complaints: Vec<_> = cases
        .iter()
        .filter_map(|case| Some(format!("{}: {}", case.name, unexpected_result(case)?)))
        .collect();
    assert!(complaints.is_empty(), "{}", complaints.join("\n"));
    let accepted =
        cases.iter().filter(|case| case.expected == ExpectedValidation::Accepted).count();
    assert!(cases.len() >= 120 && accepted >= 40, "{accepted} of {} are accepted", cases.len());
}

/// Collects the message of every rule of a schema.
fn collect_rule_messages(schema: &Value, path: &str, words: &mut Vec<String>) {
    let number = |key: &str| schema[key].as_u64();
    for name in schema["required"].as_array().into_iter().flatten() {
        words.push(format!("{path}.{}: Required value", name.as_str().unwrap()));
    }
    if schema["enum"].is_array() {
        words.push(format!("{path}: Unsupported value"));
    }
    if number("maxLength").is_some() {
        words.push(format!("{path}: Too long"));
    }
    if let Some(least) = number("minLength") {
        words.push(format!("{path} in body should be at least {least} chars long"));
    }
    if schema["pattern"].is_string() {
        words.push(format!("{path} in body should match"));
    }
    if let Some(least) = number("minItems") {
        words.push(format!("{path} in body should have at least {least} items"));
    }
    if number("maxItems").is_some() {
        words.push(format!("{path}: Too many"));
    }
    if number("minProperties").is_some() {
        words.push(format!("{path} in body should have at least"));
    }
    if schema["x-kubernetes-list-type"] == "set" {
        words.push(format!("{path}[1]: Duplicate value"));
    }
    for rule in schema["x-kubernetes-validations"].as_array().into_iter().flatten() {
        words.push(rule["message"].as_str().unwrap().to_owned());
    }
    for (name, field) in schema["properties"].as_object().into_iter().flatten() {
        collect_rule_messages(field, &format!("{path}.{name}"), words);
    }
    if schema["items"].is_object() {
        collect_rule_messages(&schema["items"], &format!("{path}[0]"), words);
    }
}

#[test]
fn every_rule_of_the_schema_has_a_case_that_breaks_it() {
    let definition =
        crd_definitions::crd_manifests().into_iter().find(|it| it.plural() == "hostedclusters");
    let schema = &definition.unwrap().value["spec"]["versions"][0]["schema"]["openAPIV3Schema"];
    let mut words = Vec::new();
    collect_rule_messages(&schema["properties"]["spec"], "spec", &mut words);
    let rejected: Vec<String> = parse_cases(FILE)
        .unwrap()
        .into_iter()
        .flat_map(|case| match case.expected {
            ExpectedValidation::Rejected { server_messages: server, .. } => server,
            ExpectedValidation::Accepted => Vec::new(),
        })
        .collect();
    // Defaults are applied first, so this rule never fails; neither do the requirements of fields
    // with a default.
    let unbreakable = [
        crd_definitions::validation_messages::SIGNING_KEY_ISSUER,
        "spec.etcd: Required value",
        "spec.networking: Required value",
        "spec.platform.azure.resourceGroup: Required value",
    ];
    let has_case = |words: &&String| {
        unbreakable.contains(&words.as_str())
            || rejected
                .iter()
                .any(|text| text.contains(words.as_str()) || is_message_prefix(text, words))
    };
    let without: Vec<_> = words.iter().filter(|words| !has_case(words)).collect();
    assert!(without.is_empty(), "{without:#?}");
    assert!(words.len() > 200, "{}", words.len());
}

/// Returns whether `text` is a distinctive beginning of `message`.
fn is_message_prefix(text: &str, message: &str) -> bool {
    text.len() > 30 && message.starts_with(text)
}

#[test]
fn parse_error_names_the_faulty_case() {
    let file = |cases: &str| {
        parse_cases(&format!(
            "bases: {{one: {{object: {{a: {{b: [x]}}}}}}}}\ntopics: [{{topic: t, base: one, at: /a, cases: [{cases}]}}]"
        ))
    };
    let cases = file("{name: it, set: {b/: w, c: {$times: 2, $of: z}}, accept: true}").unwrap();
    assert_eq!(cases[0].initial, serde_json::json!({"a": {"b": ["x", "w"], "c": "zz"}}));
    let faults = [
        ("{name: it}", "`t: it` needs either `accept: true` or `reject`"),
        ("{name: it, accept: true, reject: x}", "`t: it` needs either"),
        ("{name: it, remove: [z], accept: true}", "`t: it` cannot be made"),
        ("{name: it, base: two, accept: true}", "begins with the base `two`, which there is not"),
        ("{name: it, accept: true}, {name: it, accept: true}", "two cases are called `t: it`"),
        ("{name: it, accepts: true}", "a case of `t` cannot be read"),
    ];
    for (cases, expected) in faults {
        let error = file(cases).unwrap_err().to_string();
        assert!(error.contains(expected), "{cases}: {error}");
    }
}
