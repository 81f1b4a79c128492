use serde_json::json;

use super::*;
use crate::fixture::{self, bytes, document, time};

const NOW: &str = "2027-01-15T00:00:00Z";

fn good() -> serde_json::Value {
    let mut good = document("2027-01-01T00:00:00Z");
    good["authentication_endpoint"] = json!("https://westus2.login.microsoft.com/");
    good
}

fn inspect_at(document: &serde_json::Value, now: &str) -> Inspection {
    inspect(&bytes(document), time(now))
}

/// Severity and field of each finding.
fn brief(inspection: &Inspection) -> Vec<(Severity, &str)> {
    inspection.findings.iter().map(|f| (f.severity, f.field.as_str())).collect()
}

#[test]
fn a_good_file_is_described_and_has_no_findings() {
    let inspection = inspect_at(&good(), NOW);
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
    assert_eq!(times.expires_at, Some(time("2027-04-01T00:00:00Z")));
    assert_eq!(times.seconds_to_expiry, Some(76 * 86_400));
    assert_eq!(times.seconds_to_renew_after, Some(31 * 86_400));
}

#[test]
fn problems_of_the_document_do_not_hide_those_of_the_bundle() {
    let mut spoiled = good();
    spoiled["not_before"] = json!(null);
    spoiled["client_secret"] =
        json!(fixture::client_secret(&[fixture::OTHER_PKCS8, fixture::LEAF]));
    let inspection = inspect_at(&spoiled, NOW);
    assert_eq!(
        brief(&inspection),
        [(Severity::Error, "client_secret"), (Severity::Error, "not_before")]
    );
    let bundle = inspection.bundle.unwrap();
    assert_eq!(bundle.key, None);
    assert_eq!(bundle.certificates[0].subject, "CN=throwaway.example");
    assert!(!inspection.findings.iter().any(|f| f.next_step.is_empty()));
}

#[test]
fn an_ec_key_is_an_error_and_still_described() {
    let mut ec = good();
    ec["client_secret"] =
        json!(fixture::client_secret(&[fixture::EC_PKCS8, fixture::EC, fixture::INTERMEDIATE]));
    let inspection = inspect_at(&ec, NOW);
    assert_eq!(brief(&inspection), [(Severity::Error, "client_secret")]);
    let key = inspection.bundle.unwrap().key.unwrap();
    assert_eq!((key.kind, key.curve.as_deref()), ("EC", Some("P-256")));
}

#[test]
fn times_become_graver_as_they_pass() {
    let at = |now: &str| inspect_at(&good(), now);
    assert_eq!(brief(&at("2026-12-31T00:00:00Z")), [(Severity::Error, "not_before")]);
    assert_eq!(brief(&at("2027-02-15T00:00:00Z")), [(Severity::Warning, "renew_after")]);
    assert_eq!(
        brief(&at("2027-07-01T00:00:00Z")),
        [(Severity::Error, "not_after"), (Severity::Warning, "cannot_renew_after")]
    );
}

#[test]
fn what_other_readers_refuse_is_a_warning() {
    let mut odd = good();
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
        brief(&inspection),
        [
            (Severity::Warning, "client_secret"),
            (Severity::Warning, "client_secret"),
            (Severity::Warning, "client_id"),
            (Severity::Warning, "authentication_endpoint"),
            (Severity::Warning, "resource_id"),
            (Severity::Warning, "custom_claims.xms_az_tm"),
            (Severity::Warning, "renew_after"),
            (Severity::Note, "cannot_renew_after"),
            (Severity::Note, "document"),
        ]
    );
}

#[cfg(feature = "pkcs12")]
#[test]
fn a_modern_archive_is_read_and_warned_about() {
    let mut modern = good();
    modern["client_secret"] = json!(fixture::client_secret(&[fixture::PFX_AES_SHA256]));
    let inspection = inspect_at(&modern, NOW);
    assert_eq!(brief(&inspection), [(Severity::Warning, "client_secret")]);
    assert!(inspection.findings[0].what.contains("msi-dataplane"));
}

#[test]
fn bytes_that_are_no_document_have_one_finding() {
    let inspection = inspect(fixture::LEAF, time(NOW));
    assert_eq!(brief(&inspection), [(Severity::Error, "document")]);
    assert!(inspection.findings[0].what.contains("PEM"));
    assert_eq!(inspection.document, None);
}

#[test]
fn the_serialized_form_shows_facts_and_no_secret() {
    let mut whole = good();
    whole["client_secret_url"] = json!("https://identity.example/?sig=planted");
    let shown = serde_json::to_value(inspect_at(&whole, NOW)).unwrap();
    assert_eq!(shown["bundle"]["key"], json!({"kind": "RSA", "bits": 2048}));
    assert_eq!(shown["bundle"]["format"], "PEM");
    assert_eq!(shown["times"]["not_before"], "2027-01-01T00:00:00Z");
    let text = shown.to_string();
    assert!(!text.contains("planted"));
    assert!(!text.contains(whole["client_secret"].as_str().unwrap()));
}
