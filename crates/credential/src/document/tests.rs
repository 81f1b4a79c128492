use lanyard_clock::ErrorHint as _;
use serde_json::json;

use super::*;
use crate::detected_format::DetectedInnerFormat;
use crate::fixture::{self, document, timestamp, to_bytes};
use crate::identity::{ParseAuthorityError, ParseIdError};

const NOT_BEFORE: &str = "2027-01-01T00:00:00Z";

fn problems(bytes: &[u8]) -> Vec<DocumentProblem> {
    CredentialDocument::parse(bytes).unwrap_err().problems
}

fn single_problem(bytes: &[u8]) -> FieldProblem {
    let mut problems = problems(bytes);
    assert_eq!(problems.len(), 1, "{problems:?}");
    problems.remove(0).kind
}

#[test]
fn all_thirteen_keys_are_read() {
    let mut whole = document(NOT_BEFORE);
    whole["client_secret_url"] = json!("https://identity.example/?sig=planted");
    whole["object_id"] = json!("33333333-3333-4333-8333-333333333333");
    whole["resource_id"] = json!("/subscriptions/s/resourceGroups/g");
    whole["mtls_authentication_endpoint"] = json!("https://mtls.example/");
    whole["custom_claims"] = json!({"xms_az_tm": "azureinfra", "xms_az_nwperimid": ["a", "b"]});
    let read = CredentialDocument::parse(&to_bytes(&whole)).unwrap();
    assert_eq!(read.client_id().as_str(), fixture::CLIENT);
    assert_eq!(read.tenant_id().as_str(), fixture::TENANT);
    assert_eq!(read.authentication_endpoint().as_url().as_str(), fixture::AUTHORITY);
    assert_eq!(read.client_secret().expose(), whole["client_secret"]);
    assert_eq!(
        *read.timestamps(),
        CredentialTimestamps {
            not_before: timestamp(NOT_BEFORE),
            not_after: Some(timestamp("2027-04-01T00:00:00Z")),
            renew_after: Some(timestamp("2027-02-15T00:00:00Z")),
            cannot_renew_after: Some(timestamp("2027-06-30T00:00:00Z")),
        }
    );
    assert_eq!(read.client_secret_url().unwrap().expose(), "https://identity.example/?sig=planted");
    assert_eq!(read.object_id(), Some("33333333-3333-4333-8333-333333333333"));
    assert_eq!(read.resource_id(), Some("/subscriptions/s/resourceGroups/g"));
    assert_eq!(read.mtls_authentication_endpoint(), Some("https://mtls.example/"));
    let claims = read.custom_claims().unwrap();
    assert_eq!(claims.xms_az_tm.as_deref(), Some("azureinfra"));
    assert_eq!(claims.xms_az_nwperimid, ["a", "b"]);
    assert!(read.unknown_keys().is_empty());
}

#[test]
fn null_equals_absent_and_unknown_keys_are_ignored() {
    let mut whole = document(NOT_BEFORE);
    for key in ["not_after", "renew_after", "cannot_renew_after", "custom_claims", "object_id"] {
        whole[key] = json!(null);
    }
    whole["added_later"] = json!({"deep": [1, {"deeper": null}]});
    let read = CredentialDocument::parse(&to_bytes(&whole)).unwrap();
    assert_eq!(read.timestamps().not_after, None);
    assert_eq!(read.custom_claims(), None);
    assert_eq!(read.unknown_keys(), ["added_later"]);
    whole["not_before"] = json!(null);
    assert_eq!(single_problem(&to_bytes(&whole)), FieldProblem::Missing);
}

#[test]
fn every_problem_is_reported_at_once_with_its_field() {
    let spoiled = json!({
        "client_id": 7,
        "tenant_id": "not a tenant",
        "authentication_endpoint": "http://login.example/",
        "client_secret": "",
        "not_after": "tomorrow",
        "renew_after": ["2027-01-01T00:00:00Z"],
        "custom_claims": {"xms_az_tm": 1, "xms_az_nwperimid": ["a", {}]},
    });
    let error = CredentialDocument::parse(&to_bytes(&spoiled)).unwrap_err();
    let found: Vec<(&str, FieldProblem)> =
        error.problems.iter().map(|problem| (problem.field, problem.kind.clone())).collect();
    assert_eq!(
        found,
        [
            ("custom_claims.xms_az_tm", FieldProblem::WrongType { found: "a number" }),
            ("custom_claims.xms_az_nwperimid", FieldProblem::WrongType { found: "an object" }),
            ("client_id", FieldProblem::WrongType { found: "a number" }),
            ("tenant_id", FieldProblem::Id(ParseIdError::Character { position: 4 })),
            ("authentication_endpoint", FieldProblem::Authority(ParseAuthorityError::NotHttps)),
            ("client_secret", FieldProblem::Empty),
            ("not_before", FieldProblem::Missing),
            ("not_after", FieldProblem::InvalidTimestamp),
            ("renew_after", FieldProblem::WrongType { found: "an array" }),
        ]
    );
    for problem in &error.problems {
        assert!(error.to_string().contains(&problem.to_string()), "{problem}");
        assert!(error.hint().unwrap().contains(&*problem.hint().unwrap()), "{problem}");
    }
}

#[test]
fn authority_with_the_tenant_of_the_document_is_an_error_with_the_right_value() {
    let mut whole = document(NOT_BEFORE);
    whole["tenant_id"] = json!("contoso.onmicrosoft.com");
    for (path, expected) in [
        ("contoso.onmicrosoft.com", ""),
        ("Contoso.OnMicrosoft.com/", ""),
        ("westus2/contoso.onmicrosoft.com/", "westus2"),
    ] {
        whole["authentication_endpoint"] = json!(format!("{}{path}", fixture::AUTHORITY));
        let expected = format!("{}{expected}", fixture::AUTHORITY);
        let problem = single_problem(&to_bytes(&whole));
        let tenant_in_path = ParseAuthorityError::TenantInPath { expected };
        assert_eq!(problem, FieldProblem::Authority(tenant_in_path), "{path}");
    }
    // The path of a proxy can contain another domain.
    whole["authentication_endpoint"] = json!(format!("{}example.com", fixture::AUTHORITY));
    assert!(CredentialDocument::parse(&to_bytes(&whole)).is_ok());
}

#[test]
fn camel_case_keys_are_errors_that_name_the_right_key() {
    let camel = json!({
        "clientId": fixture::CLIENT,
        "tenantId": fixture::TENANT,
        "clientSecret": "planted",
        "authenticationEndpoint": fixture::AUTHORITY,
        "notBefore": NOT_BEFORE,
        "customClaims": {},
    });
    let problems = problems(&to_bytes(&camel));
    let fields: Vec<&str> = problems.iter().map(|problem| problem.field).collect();
    assert_eq!(
        fields,
        [
            "authentication_endpoint",
            "client_id",
            "client_secret",
            "custom_claims",
            "not_before",
            "tenant_id"
        ]
    );
    assert!(problems.iter().all(|p| matches!(p.kind, FieldProblem::Misspelled { .. })));
    assert_eq!(problems[1].to_string(), "`client_id` is written as `clientId`");
    assert_eq!(problems[1].hint().as_deref(), Some("name the key `client_id`"));
}

#[test]
fn keys_are_case_sensitive_and_an_extra_misspelled_key_is_ignored() {
    let mut shouted = document(NOT_BEFORE);
    shouted["TENANT_ID"] = shouted["tenant_id"].take();
    let written = "TENANT_ID".to_owned();
    assert_eq!(single_problem(&to_bytes(&shouted)), FieldProblem::Misspelled { written });
    let mut both = document(NOT_BEFORE);
    both["tenantId"] = json!("elsewhere");
    let read = CredentialDocument::parse(&to_bytes(&both)).unwrap();
    assert_eq!(read.tenant_id().as_str(), fixture::TENANT);
    assert_eq!(read.unknown_keys(), ["tenantId"]);
}

#[test]
fn duplicate_key_is_an_error() {
    let text = String::from_utf8(to_bytes(&document(NOT_BEFORE))).unwrap();
    let doubled = format!("{},\"tenant_id\":\"other\"}}", text.trim_end_matches('}'));
    assert_eq!(single_problem(doubled.as_bytes()), FieldProblem::Repeated);
}

#[test]
fn a_document_for_all_identities_is_recognised() {
    let identities = json!({"internal_id": "x", "explicit_identities": [document(NOT_BEFORE)]});
    assert_eq!(
        problems(&to_bytes(&identities))[0].kind,
        FieldProblem::ManagedIdentityCredentialsObject
    );
}

#[test]
fn non_document_bytes_are_reported_by_detected_format() {
    use base64::Engine as _;
    let whole = to_bytes(&document(NOT_BEFORE));
    let base64 = base64::engine::general_purpose::STANDARD.encode(&whole);
    let hex = fixture::to_hex(&whole);
    let mut marked = b"\xEF\xBB\xBF".to_vec();
    marked.extend_from_slice(&whole);
    let cases: Vec<(&[u8], DetectedFormat)> = vec![
        (b"", DetectedFormat::Empty),
        (b"\n\n", DetectedFormat::Empty),
        (&whole[..whole.len() / 2], DetectedFormat::JsonCutShort),
        (b"{", DetectedFormat::JsonCutShort),
        (b"[{}]", DetectedFormat::JsonOther),
        (b"\"text\"", DetectedFormat::JsonOther),
        (base64.as_bytes(), DetectedFormat::Base64(DetectedInnerFormat::Json)),
        (hex.as_bytes(), DetectedFormat::Hex(DetectedInnerFormat::Json)),
        (fixture::LEAF_PKCS8, DetectedFormat::Pem),
        (fixture::PFX_AES_SHA256, DetectedFormat::Pkcs12),
        (&marked, DetectedFormat::ByteOrderMark),
        (b"client_id: x", DetectedFormat::Text),
        (b"12", DetectedFormat::Text),
    ];
    for (bytes, looks_like) in cases {
        let fault = single_problem(bytes);
        assert_eq!(fault, FieldProblem::NotADocument { looks_like }, "{looks_like}");
    }
    assert!(
        CredentialDocument::parse(base64.as_bytes())
            .unwrap_err()
            .hint()
            .unwrap()
            .contains("objectEncoding")
    );
}

#[test]
fn a_syntax_error_is_located_and_not_quoted() {
    let fault = single_problem(b"{\n  \"client_id\": planted\n}");
    assert!(matches!(fault, FieldProblem::Syntax { line: 2, .. }), "{fault:?}");
    let mut trailing = to_bytes(&document(NOT_BEFORE));
    trailing.extend_from_slice(b" planted");
    assert!(matches!(single_problem(&trailing), FieldProblem::Syntax { line: 1, .. }));
}

#[test]
fn more_than_five_network_perimeters_are_rejected() {
    let mut whole = document(NOT_BEFORE);
    whole["custom_claims"] = json!({"xms_az_nwperimid": ["1", "2", "3", "4", "5"]});
    assert!(CredentialDocument::parse(&to_bytes(&whole)).is_ok());
    whole["custom_claims"] = json!({"xms_az_nwperimid": ["1", "2", "3", "4", "5", "6"]});
    assert_eq!(single_problem(&to_bytes(&whole)), FieldProblem::TooMany { limit: 5 });
}
