use proptest::prelude::*;

use super::*;

const PROPERTIES: &[FilterableProperty] = &[
    FilterableProperty::text("displayName"),
    FilterableProperty::text("appId"),
    FilterableProperty::text("mail").advanced(),
    FilterableProperty::boolean("accountEnabled"),
    FilterableProperty::time("createdDateTime"),
    FilterableProperty::text_list("servicePrincipalNames"),
];
const TARGET: FilterTarget = FilterTarget {
    resource: "ServicePrincipal",
    type_name: "servicePrincipal",
    properties: PROPERTIES,
};

fn value_of(property: &str) -> FilterValue<'static> {
    match property {
        "displayName" => FilterValue::text("Blob O'Store"),
        "appId" => FilterValue::text("a1"),
        "accountEnabled" => FilterValue::Boolean(true),
        "createdDateTime" => FilterValue::Time("2026-11-21T12:00:00Z".parse().unwrap()),
        "servicePrincipalNames" => FilterValue::List(vec!["a1".into(), "api://x".into()]),
        _ => FilterValue::Null,
    }
}

fn is_match(text: &str, is_advanced: bool) -> Result<bool, (&'static str, String)> {
    GraphFilter::parse(text, TARGET, is_advanced)
        .map(|filter| filter.matches(&value_of))
        .map_err(|error| (error.code, error.message))
}

#[test]
fn filters_of_real_clients_select_objects() {
    for (text, expected) in [
        ("displayName eq 'blob o''store'", true),
        ("displayName eq 'blob'", false),
        ("startswith(displayName,'Blob')", true),
        ("startsWith(displayName, 'x')", false),
        ("servicePrincipalNames/any(c:c eq 'API://x')", true),
        ("servicePrincipalNames/any(c:c eq 'b')", false),
        ("servicePrincipalNames/any(name:startswith(name, 'api://'))", true),
        ("appId eq 'a1' and accountEnabled eq true", true),
        ("appId eq 'a1' and accountEnabled eq false", false),
        ("appId eq 'b' or (accountEnabled eq true and startswith(displayName,'b'))", true),
        ("appId in ('x', 'A1')", true),
        ("appId in ('x')", false),
        (
            "createdDateTime ge 2026-11-21T12:00:00Z and createdDateTime lt 2027-01-01T00:00:00Z",
            true,
        ),
        ("createdDateTime gt 2026-11-21T12:00:00Z", false),
        ("displayName ge 'a' and displayName le 'c'", true),
        ("DisplayName EQ 'blob o''store'", true),
    ] {
        assert_eq!(is_match(text, false), Ok(expected), "{text}");
    }
}

#[test]
fn advanced_operators_need_an_advanced_query() {
    for (text, property, expected) in [
        ("displayName ne 'x'", "displayName", true),
        ("not(startswith(displayName,'b'))", "displayName", false),
        ("not appId eq 'x'", "appId", true),
        ("endswith(displayName,'store')", "displayName", true),
        ("mail eq null", "mail", true),
        ("mail eq 'a'", "mail", false),
        ("mail ne null", "mail", false),
    ] {
        let message = format!(
            "Unsupported or invalid query filter clause specified for property '{property}' of resource 'ServicePrincipal'."
        );
        assert_eq!(is_match(text, false), Err(("Request_UnsupportedQuery", message)), "{text}");
        assert_eq!(is_match(text, true), Ok(expected), "{text}");
    }
}

#[test]
fn invalid_filters_are_rejected_with_the_place_of_the_error() {
    let syntax = |position: usize, text: &str| {
        format!("Invalid filter clause: Syntax error at position {position} in '{text}'.")
    };
    let unsupported = |property: &str| {
        format!(
            "Unsupported or invalid query filter clause specified for property '{property}' of resource 'ServicePrincipal'."
        )
    };
    let many = vec!["appId eq 'x'"; 16].join(" or ");
    for (text, code, message) in [
        ("", "BadRequest", syntax(0, "")),
        ("appId", "BadRequest", syntax(0, "appId")),
        ("appId eq", "BadRequest", syntax(8, "appId eq")),
        ("appId eq 'a", "BadRequest", syntax(11, "appId eq 'a")),
        ("appId is 'a'", "BadRequest", syntax(6, "appId is 'a'")),
        ("appId eq 'a' xor appId eq 'b'", "BadRequest", syntax(13, "appId eq 'a' xor appId eq 'b'")),
        ("(appId eq 'a'", "BadRequest", syntax(13, "(appId eq 'a'")),
        ("appId eq %27a%27", "BadRequest", syntax(9, "appId eq %27a%27")),
        (
            "color eq 'x'",
            "BadRequest",
            "Invalid filter clause: Could not find a property named 'color' on type 'microsoft.graph.servicePrincipal'.".to_owned(),
        ),
        (
            "appId eq 00000003-0000-0000-c000-000000000000",
            "BadRequest",
            "Invalid filter clause: A binary operator with incompatible types was detected. Found operand types 'Edm.String' and 'Edm.Guid' for operator kind 'Equal'.".to_owned(),
        ),
        ("servicePrincipalNames/any(c:c eq '')", "Request_UnsupportedQuery", unsupported("servicePrincipalNames")),
        ("servicePrincipalNames eq 'x'", "Request_UnsupportedQuery", unsupported("servicePrincipalNames")),
        ("servicePrincipalNames/all(c:c eq 'x')", "Request_UnsupportedQuery", unsupported("servicePrincipalNames")),
        ("servicePrincipalNames/$count eq 0", "Request_UnsupportedQuery", unsupported("servicePrincipalNames")),
        ("appId eq ''", "Request_UnsupportedQuery", unsupported("appId")),
        (
            "contains(displayName,'x')",
            "Request_UnsupportedQuery",
            "The function 'contains' is not supported by the directory.".to_owned(),
        ),
        (
            many.as_str(),
            "Request_UnsupportedQuery",
            "Too many child clauses specified in search filter expression containing 'OR' operators: 16. Max allowed: 15.".to_owned(),
        ),
    ] {
        assert_eq!(is_match(text, true), Err((code, message)), "{text}");
    }
}

#[test]
fn required_text_is_known_for_every_match_only() {
    for (text, expected) in [
        ("appId eq 'a1'", Some("a1")),
        ("displayName eq 'x' and appId eq 'a1'", Some("a1")),
        ("appId eq 'a1' or displayName eq 'x'", None),
        ("startswith(appId,'a1')", None),
        ("appId in ('a1')", Some("a1")),
        ("not appId eq 'a1'", None),
    ] {
        let filter = GraphFilter::parse(text, TARGET, true).unwrap();
        assert_eq!(filter.required_text("appId"), expected, "{text}");
    }
}

proptest! {
    #[test]
    fn parsing_arbitrary_text_never_panics(
        text in "[a-zA-Z():,/' 0-9.$-]{0,60}",
        other in ".{0,40}",
    ) {
        for text in [text, other] {
            if let Ok(filter) = GraphFilter::parse(&text, TARGET, true) {
                filter.matches(&value_of);
            }
        }
    }

    #[test]
    fn quoted_text_matches_itself(text in "[ -~]{1,30}") {
        let filter = format!("displayName eq '{}'", text.replace('\'', "''"));
        let filter = GraphFilter::parse(&filter, TARGET, false).unwrap();
        prop_assert!(filter.matches(&|_: &str| FilterValue::text(text.clone())));
    }
}
