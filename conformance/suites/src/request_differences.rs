//! Compares two lists of requests against a list of accepted differences.

use std::collections::BTreeMap;

use serde::Deserialize;

use crate::proxied_request::{InputNames, ProxiedRequest, RequestFields};

/// A difference between upstream's request and lanyard's. `None` means that the field is absent.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
pub(crate) struct RequestDifference {
    /// The pairing key of the request, with a number if the request occurs more than once.
    pub(crate) request: String,
    /// The field; `request` if only one side made the request.
    pub(crate) field: String,
    pub(crate) theirs: Option<String>,
    pub(crate) ours: Option<String>,
}

/// An accepted difference with its reason. It must occur in every listed request of every listed case.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct AcceptedDifference {
    pub(crate) cases: Vec<String>,
    requests: Vec<String>,
    field: String,
    /// The value, or `*` for any; `None` if the field must be absent.
    theirs: Option<String>,
    /// The value of lanyard's request, in the format of `theirs`.
    ours: Option<String>,
    /// Why the difference is correct.
    reason: String,
}

impl AcceptedDifference {
    fn covers_request_and_field(&self, difference: &RequestDifference) -> bool {
        self.requests.contains(&difference.request) && self.matches_values(difference)
    }

    fn matches_values(&self, difference: &RequestDifference) -> bool {
        self.field == difference.field
            && matches_accepted_value(self.theirs.as_deref(), difference.theirs.as_deref())
            && matches_accepted_value(self.ours.as_deref(), difference.ours.as_deref())
    }
}

fn matches_accepted_value(meant: Option<&str>, found: Option<&str>) -> bool {
    meant == found || (meant == Some("*") && found.is_some())
}

/// All differences between the requests of the two sides.
pub(crate) fn compare_requests(
    theirs: &[ProxiedRequest],
    ours: &[ProxiedRequest],
    known: &InputNames,
) -> Vec<RequestDifference> {
    let theirs = number_requests(theirs, known);
    let ours = number_requests(ours, known);
    let mut found = Vec::new();
    for (request, fields) in &theirs {
        match ours.get(request) {
            Some(our_fields) => found.extend(compare_fields(request, fields, our_fields)),
            None => found.push(whole_request_difference(request, Some("made"), None)),
        }
    }
    let only_ours = ours.keys().filter(|request| !theirs.contains_key(*request));
    found.extend(only_ours.map(|request| whole_request_difference(request, None, Some("made"))));
    found
}

/// Deviations from the list: new differences, and entries without a reason or a matching difference.
pub(crate) fn unexpected_differences(
    case: &str,
    differences: &[RequestDifference],
    accepted: &[AcceptedDifference],
) -> Vec<String> {
    let of_case: Vec<&AcceptedDifference> =
        accepted.iter().filter(|entry| entry.cases.iter().any(|it| it == case)).collect();
    let mut found: Vec<String> = differences
        .iter()
        .filter(|difference| {
            !of_case.iter().any(|entry| entry.covers_request_and_field(difference))
        })
        .map(|difference| format!("new: {}", describe_difference(difference)))
        .collect();
    for entry in of_case {
        if entry.reason.trim().is_empty() {
            found.push(format!("without a reason: {}", entry.field));
        }
        let is_there = |request: &String| {
            differences.iter().any(|it| it.request == *request && entry.matches_values(it))
        };
        let gone = entry.requests.iter().filter(|request| !is_there(request));
        found.extend(gone.map(|request| format!("no longer there: {request} {}", entry.field)));
    }
    found
}

fn describe_difference(difference: &RequestDifference) -> String {
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

fn number_requests(
    exchanges: &[ProxiedRequest],
    known: &InputNames,
) -> BTreeMap<String, RequestFields> {
    let mut requests = BTreeMap::new();
    for exchange in exchanges {
        let title = exchange.pairing_key(known);
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

fn compare_fields(
    request: &str,
    theirs: &RequestFields,
    ours: &RequestFields,
) -> Vec<RequestDifference> {
    let mut names: Vec<&String> = theirs.keys().chain(ours.keys()).collect();
    names.sort_unstable();
    names.dedup();
    names
        .into_iter()
        .filter(|name| theirs.get(*name) != ours.get(*name))
        .map(|name| RequestDifference {
            request: request.to_owned(),
            field: name.clone(),
            theirs: theirs.get(name).cloned(),
            ours: ours.get(name).cloned(),
        })
        .collect()
}

fn whole_request_difference(
    request: &str,
    theirs: Option<&str>,
    ours: Option<&str>,
) -> RequestDifference {
    RequestDifference {
        request: request.to_owned(),
        field: "request".to_owned(),
        theirs: theirs.map(str::to_owned),
        ours: ours.map(str::to_owned),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(path: &str, query: &str) -> ProxiedRequest {
        ProxiedRequest {
            method: "GET".to_owned(),
            url: format!("https://vault.azure.net{path}?{query}").parse().expect("a good URL"),
            headers: Vec::new(),
            body: Vec::new(),
        }
    }

    fn accepted_difference(
        field: &str,
        theirs: Option<&str>,
        ours: Option<&str>,
        reason: &str,
    ) -> AcceptedDifference {
        AcceptedDifference {
            cases: vec!["secret".to_owned()],
            requests: vec!["GET vault.azure.net/secrets/a".to_owned()],
            field: field.to_owned(),
            theirs: theirs.map(str::to_owned),
            ours: ours.map(str::to_owned),
            reason: reason.to_owned(),
        }
    }

    fn found_differences(
        theirs: &[ProxiedRequest],
        ours: &[ProxiedRequest],
    ) -> Vec<RequestDifference> {
        compare_requests(theirs, ours, &InputNames::default())
    }

    #[test]
    fn equal_requests_do_not_differ() {
        let one =
            [request("/secrets/a", "api-version=7.5"), request("/secrets/a", "api-version=7.5")];
        assert_eq!(found_differences(&one, &one), []);
    }

    #[test]
    fn fields_that_differ_or_are_missing_are_found() {
        let theirs = [request("/secrets/a", "api-version=7.5&x=1")];
        let ours = [request("/secrets/a", "api-version=7.6&y=2")];
        let fields: Vec<String> =
            found_differences(&theirs, &ours).into_iter().map(|it| it.field).collect();
        assert_eq!(fields, ["query.api-version", "query.x", "query.y"]);
    }

    #[test]
    fn surplus_requests_of_one_side_are_found() {
        let once = [request("/secrets/a", "")];
        let twice = [request("/secrets/a", ""), request("/secrets/a", "")];
        let more = found_differences(&once, &twice);
        assert_eq!(more.len(), 1);
        assert_eq!(more[0].request, "GET vault.azure.net/secrets/a #2");
        assert_eq!(more[0].theirs, None);
        assert_eq!(found_differences(&twice, &once)[0].ours, None);
    }

    #[test]
    fn accepted_difference_requires_the_listed_values() {
        let theirs = [request("/secrets/a", "api-version=7.5")];
        let ours = [request("/secrets/a", "api-version=7.6")];
        let found = found_differences(&theirs, &ours);
        let good =
            accepted_difference("query.api-version", Some("7.5"), Some("7.6"), "newer client");
        assert_eq!(
            unexpected_differences("secret", &found, std::slice::from_ref(&good)),
            Vec::<String>::new()
        );
        let other = AcceptedDifference { ours: Some("7.7".to_owned()), ..good.clone() };
        assert_eq!(unexpected_differences("secret", &found, &[other]).len(), 2);
        let any = AcceptedDifference { ours: Some("*".to_owned()), ..good.clone() };
        assert_eq!(unexpected_differences("secret", &found, &[any]), Vec::<String>::new());
        let absent = AcceptedDifference { ours: None, ..good.clone() };
        assert_eq!(unexpected_differences("secret", &found, &[absent]).len(), 2);
        let elsewhere = AcceptedDifference { cases: vec!["token".to_owned()], ..good };
        assert_eq!(unexpected_differences("secret", &found, &[elsewhere]).len(), 1);
    }

    #[test]
    fn accepted_entries_without_use_or_reason_are_reported() {
        let unused = accepted_difference("query.x", Some("1"), None, "they send it");
        assert_eq!(unexpected_differences("secret", &[], &[unused]).len(), 1);
        let theirs = [request("/secrets/a", "x=1")];
        let ours = [request("/secrets/a", "")];
        let silent = accepted_difference("query.x", Some("1"), None, " ");
        assert_eq!(
            unexpected_differences("secret", &found_differences(&theirs, &ours), &[silent]).len(),
            1
        );
    }
}
