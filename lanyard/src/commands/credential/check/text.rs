//! The text output of a credential check.

use lanyard_credential::inspect::{BundleFacts, DocumentFacts, Inspection, TimeFacts};

use super::credential_files::READ_HINT;
use super::{CredentialCheck, CredentialCheckStep};

pub(super) fn render(check: &CredentialCheck) -> String {
    let mut lines = vec![format!("{}", check.file.display())];
    lines.extend(check.inspection.iter().flat_map(inspection_lines));
    if let Some(error) = &check.read_error {
        lines.push(format!("error: file: {error}"));
        lines.push(format!("  hint: {READ_HINT}"));
    }
    lines.extend(step_lines("token", &check.token));
    lines.extend(step_lines("call", &check.call));
    lines.push(if check.ok { "good".to_owned() } else { "not good".to_owned() });
    lines.join("\n")
}

fn inspection_lines(inspection: &Inspection) -> Vec<String> {
    let mut lines = Vec::new();
    lines.extend(inspection.document.iter().flat_map(document_rows));
    lines.extend(inspection.bundle.iter().flat_map(bundle_rows));
    lines.extend(inspection.times.iter().flat_map(time_rows));
    lines.push(text_row("content", &format!("sha256 {}", inspection.content_hash)));
    for finding in &inspection.findings {
        lines.push(format!("{}: {}: {}", finding.severity, finding.field, finding.what));
        lines.push(format!("  hint: {}", finding.next_step));
    }
    lines
}

fn text_row(name: &str, value: &str) -> String {
    format!("  {name:<12}{value}")
}

fn document_rows(facts: &DocumentFacts) -> Vec<String> {
    let mut rows = vec![text_row("keys", &facts.keys.join(", "))];
    if !facts.unknown_keys.is_empty() {
        rows.push(text_row("unknown", &facts.unknown_keys.join(", ")));
    }
    rows.extend(facts.client_id.as_ref().map(|id| text_row("client", id.as_str())));
    rows.extend(facts.tenant_id.as_ref().map(|id| text_row("tenant", id.as_str())));
    rows.extend(facts.token_endpoint.as_ref().map(|endpoint| text_row("endpoint", endpoint)));
    rows.extend(facts.resource_id.as_ref().map(|id| text_row("identity", id)));
    rows
}

fn bundle_rows(facts: &BundleFacts) -> Vec<String> {
    let mut rows = Vec::new();
    rows.extend(facts.format.map(|format| text_row("bundle", &format.to_string())));
    rows.extend(facts.key.as_ref().map(|key| {
        let bits = key.bits.map(|bits| format!(" {bits} bits")).unwrap_or_default();
        let curve = key.curve.as_ref().map(|curve| format!(" {curve}")).unwrap_or_default();
        text_row("key", &format!("{}{bits}{curve}", key.kind))
    }));
    for certificate in &facts.certificates {
        let validity = certificate.validity;
        rows.push(text_row(
            "certificate",
            &format!("{}, by {}", certificate.subject, certificate.issuer),
        ));
        rows.push(text_row("", &format!("{} to {}", validity.not_before, validity.not_after)));
        rows.push(text_row("", &format!("sha256 {}", certificate.sha256)));
    }
    rows
}

fn time_rows(facts: &TimeFacts) -> Vec<String> {
    let mut rows = Vec::new();
    if let (Some(at), Some(seconds)) = (facts.expires_at, facts.seconds_to_expiry) {
        rows.push(text_row("expires", &format!("{at}, {}", relative_time(seconds))));
    }
    let stamps = &facts.timestamps;
    if let (Some(at), Some(seconds)) = (stamps.renew_after, facts.seconds_to_renew_after) {
        rows.push(text_row("renew after", &format!("{at}, {}", relative_time(seconds))));
    }
    if let (Some(at), Some(seconds)) =
        (stamps.cannot_renew_after, facts.seconds_to_cannot_renew_after)
    {
        rows.push(text_row("renew until", &format!("{at}, {}", relative_time(seconds))));
    }
    rows
}

/// A relative time in the largest useful unit.
fn relative_time(seconds: i64) -> String {
    let (amount, unit) = match seconds.unsigned_abs() {
        seconds if seconds >= 2 * 86_400 => (seconds / 86_400, "days"),
        seconds if seconds >= 2 * 3_600 => (seconds / 3_600, "hours"),
        seconds if seconds >= 2 * 60 => (seconds / 60, "minutes"),
        seconds => (seconds, "seconds"),
    };
    if seconds < 0 { format!("{amount} {unit} ago") } else { format!("in {amount} {unit}") }
}

fn step_lines(name: &str, step: &CredentialCheckStep) -> Vec<String> {
    match step {
        CredentialCheckStep::Good { detail } => vec![text_row(name, detail)],
        CredentialCheckStep::Failed { detail, next_step } => {
            vec![format!("error: {name}: {detail}"), format!("  hint: {next_step}")]
        }
        CredentialCheckStep::NotTried { reason } => {
            vec![text_row(name, &format!("not tried: {reason}"))]
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn relative_time_uses_the_largest_useful_unit() {
        let cases = [
            (5, "in 5 seconds"),
            (7_200, "in 2 hours"),
            (119 * 60, "in 119 minutes"),
            (90 * 86_400, "in 90 days"),
            (-3 * 86_400, "3 days ago"),
        ];
        for (seconds, expected) in cases {
            assert_eq!(relative_time(seconds), expected);
        }
    }
}
