use serde_json::json;

use super::*;
use crate::fixture::{self, document, timestamp, to_bytes};

const NOW: &str = "2027-01-15T00:00:00Z";

fn valid_document() -> serde_json::Value {
    let mut good = document("2027-01-01T00:00:00Z");
    good["authentication_endpoint"] = json!("https://westus2.login.microsoft.com/");
    good
}

fn inspect_at(document: &serde_json::Value, now: &str) -> Inspection {
    inspect(&to_bytes(document), timestamp(now))
}

/// The severity and field of each finding.
fn severities_and_fields(inspection: &Inspection) -> Vec<(FindingSeverity, &str)> {
    inspection.findings.iter().map(|f| (f.severity, f.field.as_str())).collect()
}

#[test]
fn a_good_file_is_described_and_has_no_findings() {
    let inspection = inspect_at(&valid_document(), NOW);
    assert_eq!(inspection.findings, []);
    assert!(inspection.is_usable());
    let document = inspection.document.unwrap();
    assert_eq!(document.client_id.unwrap().as_str(), fixture::CLIENT);
    assert_eq!(document.cloud, Some("AzurePublicCloud"));
    assert_eq!(
        document.token_endpoint.unwrap(),
        format!("https://westus2.login.microsoft.com/{}/oauth2/v2.0/token", fixture::TENANT)
    );
    assert!(document.keys.contains(&"client_secret"));
    let bundle = inspection.bundle.unwrap();
    assert_eq!(bundle.key.unwrap().bits, Some(2048));
    let subjects: Vec<&str> = bundle.certificates.iter().map(|c| c.subject.as_str()).collect();
    assert_eq!(subjects, ["CN=throwaway.example", "CN=Throwaway intermediate"]);
    assert_eq!((bundle.certificates[0].sha256.len(), bundle.certificates[0].sha1.len()), (64, 40));
    let times = inspection.times.unwrap();
    assert_eq!(times.expires_at, Some(timestamp("2027-04-01T00:00:00Z")));
    assert_eq!(times.seconds_to_expiry, Some(76 * 86_400));
    assert_eq!(times.seconds_to_renew_after, Some(31 * 86_400));
}

#[test]
fn problems_of_the_document_do_not_hide_those_of_the_bundle() {
    let mut spoiled = valid_document();
    spoiled["not_before"] = json!(null);
    spoiled["client_secret"] =
        json!(fixture::client_secret(&[fixture::OTHER_PKCS8, fixture::LEAF]));
    let inspection = inspect_at(&spoiled, NOW);
    assert_eq!(
        severities_and_fields(&inspection),
        [(FindingSeverity::Error, "client_secret"), (FindingSeverity::Error, "not_before")]
    );
    let bundle = inspection.bundle.unwrap();
    assert_eq!(bundle.key, None);
    assert_eq!(bundle.certificates[0].subject, "CN=throwaway.example");
    assert!(!inspection.findings.iter().any(|f| f.next_step.is_empty()));
}

#[test]
fn an_ec_key_is_an_error_and_still_described() {
    let mut ec = valid_document();
    ec["client_secret"] =
        json!(fixture::client_secret(&[fixture::EC_PKCS8, fixture::EC, fixture::INTERMEDIATE]));
    let inspection = inspect_at(&ec, NOW);
    assert_eq!(severities_and_fields(&inspection), [(FindingSeverity::Error, "client_secret")]);
    let key = inspection.bundle.unwrap().key.unwrap();
    assert_eq!((key.kind, key.curve.as_deref()), ("EC", Some("P-256")));
}

#[test]
fn findings_become_more_severe_as_times_pass() {
    let at = |now: &str| inspect_at(&valid_document(), now);
    assert_eq!(
        severities_and_fields(&at("2026-12-31T00:00:00Z")),
        [(FindingSeverity::Error, "not_before")]
    );
    assert_eq!(
        severities_and_fields(&at("2027-02-15T00:00:00Z")),
        [(FindingSeverity::Warning, "renew_after")]
    );
    assert_eq!(
        severities_and_fields(&at("2027-07-01T00:00:00Z")),
        [(FindingSeverity::Error, "not_after"), (FindingSeverity::Warning, "cannot_renew_after")]
    );
}

#[test]
fn input_that_other_readers_reject_is_a_warning() {
    let mut odd = valid_document();
    let secret = fixture::client_secret(&[fixture::LEAF_PKCS8, fixture::LEAF]);
    odd["client_secret"] = json!(secret.trim_end_matches('='));
    odd["client_id"] = json!("http://my-app");
    odd["authentication_endpoint"] = json!("https://login.microsoftonline.com.evil.example/");
    odd["resource_id"] = json!("my-identity");
    odd["custom_claims"] = json!({"xms_az_tm": "other"});
    odd["renew_after"] = json!("2027-05-01T00:00:00Z");
    odd["later"] = json!(1);
    odd.as_object_mut().unwrap().remove("cannot_renew_after");
    let inspection = inspect_at(&odd, NOW);
    assert!(inspection.is_usable());
    assert_eq!(
        severities_and_fields(&inspection),
        [
            (FindingSeverity::Warning, "client_secret"),
            (FindingSeverity::Warning, "client_secret"),
            (FindingSeverity::Warning, "client_id"),
            (FindingSeverity::Warning, "authentication_endpoint"),
            (FindingSeverity::Warning, "resource_id"),
            (FindingSeverity::Warning, "custom_claims.xms_az_tm"),
            (FindingSeverity::Warning, "renew_after"),
            (FindingSeverity::Note, "cannot_renew_after"),
            (FindingSeverity::Note, "document"),
        ]
    );
}

#[cfg(feature = "pkcs12")]
#[test]
fn a_modern_archive_is_read_and_warned_about() {
    let mut modern = valid_document();
    modern["client_secret"] = json!(fixture::client_secret(&[fixture::PFX_AES_SHA256]));
    let inspection = inspect_at(&modern, NOW);
    assert_eq!(severities_and_fields(&inspection), [(FindingSeverity::Warning, "client_secret")]);
    assert!(inspection.findings[0].what.contains("msi-dataplane"));
}

#[test]
fn non_document_bytes_have_one_finding() {
    let inspection = inspect(fixture::LEAF, timestamp(NOW));
    assert_eq!(severities_and_fields(&inspection), [(FindingSeverity::Error, "document")]);
    assert!(inspection.findings[0].what.contains("PEM"));
    assert_eq!(inspection.document, None);
}

#[test]
fn the_serialized_form_shows_facts_and_no_secret() {
    let mut whole = valid_document();
    whole["client_secret_url"] = json!("https://identity.example/?sig=planted");
    let shown = serde_json::to_value(inspect_at(&whole, NOW)).unwrap();
    assert_eq!(shown["bundle"]["key"], json!({"kind": "RSA", "bits": 2048}));
    assert_eq!(shown["bundle"]["format"], "PEM");
    assert_eq!(shown["times"]["notBefore"], "2027-01-01T00:00:00Z");
    let text = shown.to_string();
    assert!(!text.contains("planted"));
    assert!(!text.contains(whole["client_secret"].as_str().unwrap()));
}
