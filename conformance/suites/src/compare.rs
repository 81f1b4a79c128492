//! Comparing two lists of requests, against a list of differences that are meant.

use std::collections::BTreeMap;

use serde::Deserialize;

use crate::exchange::{Exchange, Fields, Known};

/// A difference between their request and ours; `None` is a field that is not there.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
pub(crate) struct Difference {
    /// The request, or the n-th one where a request is made more than once.
    pub(crate) request: String,
    /// The field; `request` where the whole request is made by one side only.
    pub(crate) field: String,
    pub(crate) theirs: Option<String>,
    pub(crate) ours: Option<String>,
}

/// A difference that is meant, and why. It must occur in every request of every case that is named.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Accepted {
    pub(crate) cases: Vec<String>,
    requests: Vec<String>,
    field: String,
    /// The value, or `*` for any; nothing where the field must be absent.
    theirs: Option<String>,
    /// As `theirs`.
    ours: Option<String>,
    /// Why it is right.
    reason: String,
}

impl Accepted {
    fn covers(&self, difference: &Difference) -> bool {
        self.requests.contains(&difference.request) && self.agrees(difference)
    }

    fn agrees(&self, difference: &Difference) -> bool {
        self.field == difference.field
            && is_meant(self.theirs.as_deref(), difference.theirs.as_deref())
            && is_meant(self.ours.as_deref(), difference.ours.as_deref())
    }
}

fn is_meant(meant: Option<&str>, found: Option<&str>) -> bool {
    meant == found || (meant == Some("*") && found.is_some())
}

/// Every difference between the two sides.
pub(crate) fn differences(
    theirs: &[Exchange],
    ours: &[Exchange],
    known: &Known,
) -> Vec<Difference> {
    let theirs = numbered(theirs, known);
    let ours = numbered(ours, known);
    let mut found = Vec::new();
    for (request, fields) in &theirs {
        match ours.get(request) {
            Some(our_fields) => found.extend(field_differences(request, fields, our_fields)),
            None => found.push(whole(request, Some("made"), None)),
        }
    }
    let only_ours = ours.keys().filter(|request| !theirs.contains_key(*request));
    found.extend(only_ours.map(|request| whole(request, None, Some("made"))));
    found
}

/// What does not agree with the list: a difference that is new, and an entry without reason or use.
pub(crate) fn disagreements(
    case: &str,
    differences: &[Difference],
    accepted: &[Accepted],
) -> Vec<String> {
    let of_case: Vec<&Accepted> =
        accepted.iter().filter(|entry| entry.cases.iter().any(|it| it == case)).collect();
    let mut found: Vec<String> = differences
        .iter()
        .filter(|difference| !of_case.iter().any(|entry| entry.covers(difference)))
        .map(|difference| format!("new: {}", described(difference)))
        .collect();
    for entry in of_case {
        if entry.reason.trim().is_empty() {
            found.push(format!("without a reason: {}", entry.field));
        }
        let is_there = |request: &String| {
            differences.iter().any(|it| it.request == *request && entry.agrees(it))
        };
        let gone = entry.requests.iter().filter(|request| !is_there(request));
        found.extend(gone.map(|request| format!("no longer there: {request} {}", entry.field)));
    }
    found
}

fn described(difference: &Difference) -> String {
    let side = |value: &Option<String>| match value {
        Some(value) => format!("`{value}`"),
        None => "absent".to_owned(),
    };
    format!(
        "{} {}: theirs {}, ours {}",
        difference.request,
        difference.field,
        side(&difference.theirs),
        side(&difference.ours)
    )
}

fn numbered(exchanges: &[Exchange], known: &Known) -> BTreeMap<String, Fields> {
    let mut requests = BTreeMap::new();
    for exchange in exchanges {
        let title = exchange.title(known);
        let mut name = title.clone();
        let mut number = 1;
        while requests.contains_key(&name) {
            number += 1;
            name = format!("{title} #{number}");
        }
        requests.insert(name, exchange.fields(known));
    }
    requests
}

fn field_differences(request: &str, theirs: &Fields, ours: &Fields) -> Vec<Difference> {
    let mut names: Vec<&String> = theirs.keys().chain(ours.keys()).collect();
    names.sort_unstable();
    names.dedup();
    names
        .into_iter()
        .filter(|name| theirs.get(*name) != ours.get(*name))
        .map(|name| Difference {
            request: request.to_owned(),
            field: name.clone(),
            theirs: theirs.get(name).cloned(),
            ours: ours.get(name).cloned(),
        })
        .collect()
}

fn whole(request: &str, theirs: Option<&str>, ours: Option<&str>) -> Difference {
    Difference {
        request: request.to_owned(),
        field: "request".to_owned(),
        theirs: theirs.map(str::to_owned),
        ours: ours.map(str::to_owned),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(path: &str, query: &str) -> Exchange {
        Exchange {
            method: "GET".to_owned(),
            url: format!("https://vault.azure.net{path}?{query}").parse().expect("a good URL"),
            headers: Vec::new(),
            body: Vec::new(),
        }
    }

    fn accepted(field: &str, theirs: Option<&str>, ours: Option<&str>, reason: &str) -> Accepted {
        Accepted {
            cases: vec!["secret".to_owned()],
            requests: vec!["GET vault.azure.net/secrets/a".to_owned()],
            field: field.to_owned(),
            theirs: theirs.map(str::to_owned),
            ours: ours.map(str::to_owned),
            reason: reason.to_owned(),
        }
    }

    fn found(theirs: &[Exchange], ours: &[Exchange]) -> Vec<Difference> {
        differences(theirs, ours, &Known::default())
    }

    #[test]
    fn equal_requests_do_not_differ() {
        let one =
            [request("/secrets/a", "api-version=7.5"), request("/secrets/a", "api-version=7.5")];
        assert_eq!(found(&one, &one), []);
    }

    #[test]
    fn fields_that_differ_or_are_missing_are_found() {
        let theirs = [request("/secrets/a", "api-version=7.5&x=1")];
        let ours = [request("/secrets/a", "api-version=7.6&y=2")];
        let fields: Vec<String> = found(&theirs, &ours).into_iter().map(|it| it.field).collect();
        assert_eq!(fields, ["query.api-version", "query.x", "query.y"]);
    }

    #[test]
    fn requests_of_one_side_are_found_by_count_too() {
        let once = [request("/secrets/a", "")];
        let twice = [request("/secrets/a", ""), request("/secrets/a", "")];
        let more = found(&once, &twice);
        assert_eq!(more.len(), 1);
        assert_eq!(more[0].request, "GET vault.azure.net/secrets/a #2");
        assert_eq!(more[0].theirs, None);
        assert_eq!(found(&twice, &once)[0].ours, None);
    }

    #[test]
    fn an_accepted_difference_is_accepted_with_these_values_only() {
        let theirs = [request("/secrets/a", "api-version=7.5")];
        let ours = [request("/secrets/a", "api-version=7.6")];
        let found = found(&theirs, &ours);
        let good = accepted("query.api-version", Some("7.5"), Some("7.6"), "newer client");
        assert_eq!(
            disagreements("secret", &found, std::slice::from_ref(&good)),
            Vec::<String>::new()
        );
        let other = Accepted { ours: Some("7.7".to_owned()), ..good.clone() };
        assert_eq!(disagreements("secret", &found, &[other]).len(), 2);
        let any = Accepted { ours: Some("*".to_owned()), ..good.clone() };
        assert_eq!(disagreements("secret", &found, &[any]), Vec::<String>::new());
        let absent = Accepted { ours: None, ..good.clone() };
        assert_eq!(disagreements("secret", &found, &[absent]).len(), 2);
        let elsewhere = Accepted { cases: vec!["token".to_owned()], ..good };
        assert_eq!(disagreements("secret", &found, &[elsewhere]).len(), 1);
    }

    #[test]
    fn entries_without_use_or_reason_are_found() {
        let unused = accepted("query.x", Some("1"), None, "they send it");
        assert_eq!(disagreements("secret", &[], &[unused]).len(), 1);
        let theirs = [request("/secrets/a", "x=1")];
        let ours = [request("/secrets/a", "")];
        let silent = accepted("query.x", Some("1"), None, " ");
        assert_eq!(disagreements("secret", &found(&theirs, &ours), &[silent]).len(), 1);
    }
}
