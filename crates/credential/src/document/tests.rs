use serde_json::json;

use super::*;
use crate::fixture::{self, bytes, document, time};
use crate::identity::{ParseAuthorityError, ParseIdError};
use crate::lookalike::Inner;

const NOT_BEFORE: &str = "2027-01-01T00:00:00Z";

fn problems(bytes: &[u8]) -> Vec<DocumentProblem> {
    CredentialDocument::parse(bytes).unwrap_err().problems
}

fn only_fault(bytes: &[u8]) -> Fault {
    let mut problems = problems(bytes);
    assert_eq!(problems.len(), 1, "{problems:?}");
    problems.remove(0).fault
}

#[test]
fn all_thirteen_keys_are_read() {
    let mut whole = document(NOT_BEFORE);
    whole["client_secret_url"] = json!("https://identity.example/?sig=planted");
    whole["object_id"] = json!("33333333-3333-4333-8333-333333333333");
    whole["resource_id"] = json!("/subscriptions/s/resourceGroups/g");
    whole["mtls_authentication_endpoint"] = json!("https://mtls.example/");
    whole["custom_claims"] = json!({"xms_az_tm": "azureinfra", "xms_az_nwperimid": ["a", "b"]});
    let read = CredentialDocument::parse(&bytes(&whole)).unwrap();
    assert_eq!(read.client_id().as_str(), fixture::CLIENT);
    assert_eq!(read.tenant_id().as_str(), fixture::TENANT);
    assert_eq!(read.authentication_endpoint().as_url().as_str(), fixture::AUTHORITY);
    assert_eq!(read.client_secret().expose(), whole["client_secret"]);
    assert_eq!(
        *read.stamps(),
        Stamps {
            not_before: time(NOT_BEFORE),
            not_after: Some(time("2027-04-01T00:00:00Z")),
            renew_after: Some(time("2027-02-15T00:00:00Z")),
            cannot_renew_after: Some(time("2027-06-30T00:00:00Z")),
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
fn null_is_as_good_as_absent_and_unknown_keys_are_passed_over() {
    let mut whole = document(NOT_BEFORE);
    for key in ["not_after", "renew_after", "cannot_renew_after", "custom_claims", "object_id"] {
        whole[key] = json!(null);
    }
    whole["added_later"] = json!({"deep": [1, {"deeper": null}]});
    let read = CredentialDocument::parse(&bytes(&whole)).unwrap();
    assert_eq!(read.stamps().not_after, None);
    assert_eq!(read.custom_claims(), None);
    assert_eq!(read.unknown_keys(), ["added_later"]);
    whole["not_before"] = json!(null);
    assert_eq!(only_fault(&bytes(&whole)), Fault::Missing);
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
    let error = CredentialDocument::parse(&bytes(&spoiled)).unwrap_err();
    let found: Vec<(&str, Fault)> =
        error.problems.iter().map(|problem| (problem.field, problem.fault.clone())).collect();
    assert_eq!(
        found,
        [
            ("custom_claims.xms_az_tm", Fault::WrongType { found: "a number" }),
            ("custom_claims.xms_az_nwperimid", Fault::WrongType { found: "an object" }),
            ("client_id", Fault::WrongType { found: "a number" }),
            ("tenant_id", Fault::Id(ParseIdError::Character { position: 4 })),
            ("authentication_endpoint", Fault::Authority(ParseAuthorityError::NotHttps)),
            ("client_secret", Fault::Empty),
            ("not_before", Fault::Missing),
            ("not_after", Fault::Stamp),
            ("renew_after", Fault::WrongType { found: "an array" }),
        ]
    );
    for problem in &error.problems {
        assert!(error.to_string().contains(&problem.to_string()), "{problem}");
        assert!(error.hint().contains(&problem.hint()), "{problem}");
    }
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
    let problems = problems(&bytes(&camel));
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
    assert!(problems.iter().all(|p| matches!(p.fault, Fault::Misspelled { .. })));
    assert_eq!(problems[1].to_string(), "`client_id` is written as `clientId`");
    assert_eq!(problems[1].hint(), "name the key `client_id`");
}

#[test]
fn case_matters_and_a_misspelled_key_beside_the_right_one_does_not() {
    let mut shouted = document(NOT_BEFORE);
    shouted["TENANT_ID"] = shouted["tenant_id"].take();
    let written = "TENANT_ID".to_owned();
    assert_eq!(only_fault(&bytes(&shouted)), Fault::Misspelled { written });
    let mut both = document(NOT_BEFORE);
    both["tenantId"] = json!("elsewhere");
    let read = CredentialDocument::parse(&bytes(&both)).unwrap();
    assert_eq!(read.tenant_id().as_str(), fixture::TENANT);
    assert_eq!(read.unknown_keys(), ["tenantId"]);
}

#[test]
fn a_key_that_stands_there_twice_is_an_error() {
    let text = String::from_utf8(bytes(&document(NOT_BEFORE))).unwrap();
    let doubled = format!("{},\"tenant_id\":\"other\"}}", text.trim_end_matches('}'));
    assert_eq!(only_fault(doubled.as_bytes()), Fault::Repeated);
}

#[test]
fn a_document_for_all_identities_is_recognised() {
    let identities = json!({"internal_id": "x", "explicit_identities": [document(NOT_BEFORE)]});
    assert_eq!(problems(&bytes(&identities))[0].fault, Fault::OtherObject);
}

#[test]
fn bytes_that_are_no_document_say_what_they_look_like() {
    use base64::Engine as _;
    let whole = bytes(&document(NOT_BEFORE));
    let base64 = base64::engine::general_purpose::STANDARD.encode(&whole);
    let hex = fixture::hex(&whole);
    let mut marked = b"\xEF\xBB\xBF".to_vec();
    marked.extend_from_slice(&whole);
    let cases: Vec<(&[u8], Lookalike)> = vec![
        (b"", Lookalike::Empty),
        (b"\n\n", Lookalike::Empty),
        (&whole[..whole.len() / 2], Lookalike::JsonCutShort),
        (b"{", Lookalike::JsonCutShort),
        (b"[{}]", Lookalike::JsonOther),
        (b"\"text\"", Lookalike::JsonOther),
        (base64.as_bytes(), Lookalike::Base64(Inner::Json)),
        (hex.as_bytes(), Lookalike::Hex(Inner::Json)),
        (fixture::LEAF_PKCS8, Lookalike::Pem),
        (fixture::PFX_AES_SHA256, Lookalike::Pkcs12),
        (&marked, Lookalike::ByteOrderMark),
        (b"client_id: x", Lookalike::Text),
        (b"12", Lookalike::Text),
    ];
    for (bytes, looks_like) in cases {
        let fault = only_fault(bytes);
        assert_eq!(fault, Fault::NotADocument { looks_like }, "{looks_like}");
    }
    assert!(
        CredentialDocument::parse(base64.as_bytes()).unwrap_err().hint().contains("objectEncoding")
    );
}

#[test]
fn a_syntax_error_is_located_and_not_quoted() {
    let fault = only_fault(b"{\n  \"client_id\": planted\n}");
    assert!(matches!(fault, Fault::Syntax { line: 2, .. }), "{fault:?}");
    let mut trailing = bytes(&document(NOT_BEFORE));
    trailing.extend_from_slice(b" planted");
    assert!(matches!(only_fault(&trailing), Fault::Syntax { line: 1, .. }));
}

#[test]
fn five_perimeters_are_the_most() {
    let mut whole = document(NOT_BEFORE);
    whole["custom_claims"] = json!({"xms_az_nwperimid": ["1", "2", "3", "4", "5"]});
    assert!(CredentialDocument::parse(&bytes(&whole)).is_ok());
    whole["custom_claims"] = json!({"xms_az_nwperimid": ["1", "2", "3", "4", "5", "6"]});
    assert_eq!(only_fault(&bytes(&whole)), Fault::TooMany { limit: 5 });
}
