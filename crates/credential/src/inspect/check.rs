//! Checks a parsable file for irregularities.

use jiff::Timestamp;
use lanyard_clock::ErrorHint as _;
use uuid::Uuid;

use super::FindingList;
use super::facts::cloud_name;
use crate::bundle::{BundleWarning, CertificateBundle, CertificateValidity};
use crate::document::{CredentialTimestamps, DocumentFields};
use crate::loader::{HealthWarning, validity_warnings};

/// Checks the document except its bundle.
pub(super) fn check_fields(
    fields: &DocumentFields,
    leaf: Option<CertificateValidity>,
    now: Timestamp,
    findings: &mut FindingList,
) {
    for problem in &fields.problems {
        findings.error(problem.field, problem.kind.to_string(), problem.hint().unwrap_or_default());
    }
    check_identifiers(fields, findings);
    if let Some(stamps) = fields.timestamps() {
        check_time_order(&stamps, findings);
        for warning in validity_warnings(&stamps, leaf, now) {
            report_time_warning(&warning, findings);
        }
    }
    let optional = [
        ("not_after", fields.not_after),
        ("renew_after", fields.renew_after),
        ("cannot_renew_after", fields.cannot_renew_after),
    ];
    for (field, stamp) in optional {
        if stamp.is_none() && !fields.problems.iter().any(|problem| problem.field == field) {
            findings.note(
                field,
                "is absent",
                "write it, so that expiry can be foreseen; Key Vault storage needs it",
            );
        }
    }
    for key in &fields.unknown_keys {
        findings.note(
            "document",
            format!("has the unknown key `{key}`"),
            "remove it, or ignore this",
        );
    }
}

fn check_identifiers(fields: &DocumentFields, findings: &mut FindingList) {
    if let Some(client) = &fields.client_id
        && Uuid::try_parse(client.as_str()).is_err()
    {
        findings.warn("client_id", "is not a GUID", "write the application id, not a name or URI");
    }
    if let Some(authority) = &fields.authentication_endpoint
        && cloud_name(authority).is_none()
    {
        findings.warn(
            "authentication_endpoint",
            "is not a token service of a known cloud",
            "compare it with the cloud's authority, unless it is private or emulated",
        );
    }
    if let Some(resource) = &fields.resource_id
        && !resource.to_ascii_lowercase().starts_with("/subscriptions/")
    {
        findings.warn(
            "resource_id",
            "is not an ARM id",
            "write /subscriptions/… as Azure shows it",
        );
    }
    let mode = fields.custom_claims.as_ref().and_then(|claims| claims.xms_az_tm.as_deref());
    if mode.is_some_and(|mode| !matches!(mode, "azureinfra" | "user")) {
        findings.warn(
            "custom_claims.xms_az_tm",
            "is neither `azureinfra` nor `user`",
            "write one of the two",
        );
    }
}

/// Checks for timestamps that contradict each other.
fn check_time_order(stamps: &CredentialTimestamps, findings: &mut FindingList) {
    let before = |earlier: Option<Timestamp>, later: Option<Timestamp>| {
        earlier.zip(later).is_some_and(|(earlier, later)| later <= earlier)
    };
    let rules = [
        ("not_after", Some(stamps.not_before), stamps.not_after, "does not lie after `not_before`"),
        (
            "renew_after",
            Some(stamps.not_before),
            stamps.renew_after,
            "does not lie after `not_before`",
        ),
        ("renew_after", stamps.renew_after, stamps.not_after, "does not lie before `not_after`"),
        (
            "cannot_renew_after",
            stamps.renew_after,
            stamps.cannot_renew_after,
            "does not lie after `renew_after`",
        ),
    ];
    for (field, earlier, later, what) in rules {
        if before(earlier, later) {
            findings.warn(field, what, "have the writer of the document correct the time");
        }
    }
}

fn report_time_warning(warning: &HealthWarning, findings: &mut FindingList) {
    let what = warning.to_string();
    match warning {
        HealthWarning::NotYetValid { .. } => {
            findings.error("not_before", what, "wait, or check the clock of this machine");
        }
        HealthWarning::Expired { .. } => {
            findings.error("not_after", what, "rotate the credential now");
        }
        HealthWarning::RenewalImpossible { .. } => findings.warn(
            "cannot_renew_after",
            what,
            "reissue the identity's credential; renewal is no longer possible",
        ),
        HealthWarning::RenewalDue { .. } => findings.warn(
            "renew_after",
            what,
            "find out why the refresher has not renewed it, or why the new one has not arrived",
        ),
        HealthWarning::CertificateStartsLater { .. } => {
            findings.warn("not_before", what, "write the certificate's own dates to the document");
        }
        HealthWarning::CertificateEndsEarlier { .. } => {
            findings.warn("not_after", what, "write the certificate's own dates to the document");
        }
        _ => findings.warn("document", what, "compare with the version before"),
    }
}

/// Checks a usable bundle for irregularities.
pub(super) fn check_bundle(bundle: &CertificateBundle, findings: &mut FindingList) {
    let field = "client_secret";
    for warning in bundle.warnings() {
        let what = warning.to_string();
        match warning {
            BundleWarning::Base64Unpadded | BundleWarning::Base64UrlAlphabet => {
                findings.warn(field, what, "encode again with the standard alphabet and padding");
            }
            BundleWarning::ModernPkcs12 => findings.warn(
                field,
                what,
                "write PEM, or 3DES and SHA-1, while components with that library read the file",
            ),
            BundleWarning::SeveralLeaves => {
                findings.warn(field, what, "keep the newest certificate of the key");
            }
            BundleWarning::Base64LineBreaks
            | BundleWarning::LeafNotFirst
            | BundleWarning::RepeatedCertificate
            | BundleWarning::SectionsPassedOver => {
                findings.note(
                    field,
                    what,
                    "nothing, it is understood; tidy it at the next rotation",
                );
            }
        }
    }
    let [leaf, issuers @ ..] = bundle.chain() else { return };
    let issued = |subject: &str| issuers.iter().any(|issuer| issuer.subject() == subject);
    if leaf.subject() != leaf.issuer() && !issued(leaf.issuer()) {
        findings.warn(
            field,
            "the certificate of the leaf's issuer is not in the bundle",
            "add the intermediate certificates: sign-in by subject name and issuer needs the chain",
        );
    }
}
