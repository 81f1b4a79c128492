//! The findings of a check for people.

use lanyard_credential::inspect::{BundleFacts, DocumentFacts, TimeFacts};

use super::{Check, Step};

pub(super) fn render(check: &Check) -> String {
    let mut lines = vec![format!("{}", check.file.display())];
    let inspection = &check.inspection;
    lines.extend(inspection.document.iter().flat_map(document));
    lines.extend(inspection.bundle.iter().flat_map(bundle));
    lines.extend(inspection.times.iter().flat_map(times));
    lines.push(row("content", &format!("sha256 {}", inspection.content_hash)));
    for finding in &inspection.findings {
        lines.push(format!("{}: {}: {}", finding.severity, finding.field, finding.what));
        lines.push(format!("  hint: {}", finding.next_step));
    }
    lines.extend(step("token", &check.token));
    lines.extend(step("call", &check.call));
    lines.push(if check.ok { "good".to_owned() } else { "not good".to_owned() });
    lines.join("\n")
}

fn row(name: &str, value: &str) -> String {
    format!("  {name:<12}{value}")
}

fn document(facts: &DocumentFacts) -> Vec<String> {
    let mut rows = vec![row("keys", &facts.keys.join(", "))];
    if !facts.unknown_keys.is_empty() {
        rows.push(row("unknown", &facts.unknown_keys.join(", ")));
    }
    rows.extend(facts.client_id.as_ref().map(|id| row("client", id.as_str())));
    rows.extend(facts.tenant_id.as_ref().map(|id| row("tenant", id.as_str())));
    rows.extend(facts.token_endpoint.as_ref().map(|endpoint| row("endpoint", endpoint)));
    rows.extend(facts.resource_id.as_ref().map(|id| row("identity", id)));
    rows
}

fn bundle(facts: &BundleFacts) -> Vec<String> {
    let mut rows = Vec::new();
    rows.extend(facts.format.map(|format| row("bundle", &format.to_string())));
    rows.extend(facts.key.as_ref().map(|key| {
        let bits = key.bits.map(|bits| format!(" {bits} bits")).unwrap_or_default();
        let curve = key.curve.as_ref().map(|curve| format!(" {curve}")).unwrap_or_default();
        row("key", &format!("{}{bits}{curve}", key.kind))
    }));
    for certificate in &facts.certificates {
        let validity = certificate.validity;
        rows.push(row(
            "certificate",
            &format!("{}, by {}", certificate.subject, certificate.issuer),
        ));
        rows.push(row("", &format!("{} to {}", validity.not_before, validity.not_after)));
        rows.push(row("", &format!("sha256 {}", certificate.sha256)));
    }
    rows
}

fn times(facts: &TimeFacts) -> Vec<String> {
    let mut rows = Vec::new();
    if let (Some(at), Some(seconds)) = (facts.expires_at, facts.seconds_to_expiry) {
        rows.push(row("expires", &format!("{at}, {}", away(seconds))));
    }
    let stamps = &facts.stamps;
    if let (Some(at), Some(seconds)) = (stamps.renew_after, facts.seconds_to_renew_after) {
        rows.push(row("renew after", &format!("{at}, {}", away(seconds))));
    }
    if let (Some(at), Some(seconds)) =
        (stamps.cannot_renew_after, facts.seconds_to_cannot_renew_after)
    {
        rows.push(row("renew until", &format!("{at}, {}", away(seconds))));
    }
    rows
}

/// A distance in the largest unit that says something.
fn away(seconds: i64) -> String {
    let (amount, unit) = match seconds.unsigned_abs() {
        seconds if seconds >= 2 * 86_400 => (seconds / 86_400, "days"),
        seconds if seconds >= 2 * 3_600 => (seconds / 3_600, "hours"),
        seconds if seconds >= 2 * 60 => (seconds / 60, "minutes"),
        seconds => (seconds, "seconds"),
    };
    if seconds < 0 { format!("{amount} {unit} ago") } else { format!("in {amount} {unit}") }
}

fn step(name: &str, step: &Step) -> Vec<String> {
    match step {
        Step::Good { detail } => vec![row(name, detail)],
        Step::Failed { detail, next_step } => {
            vec![format!("error: {name}: {detail}"), format!("  hint: {next_step}")]
        }
        Step::NotTried { reason } => vec![row(name, &format!("not tried: {reason}"))],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_distance_is_told_in_the_largest_unit_that_says_something() {
        let cases = [
            (5, "in 5 seconds"),
            (7_200, "in 2 hours"),
            (119 * 60, "in 119 minutes"),
            (90 * 86_400, "in 90 days"),
            (-3 * 86_400, "3 days ago"),
        ];
        for (seconds, expected) in cases {
            assert_eq!(away(seconds), expected);
        }
    }
}
