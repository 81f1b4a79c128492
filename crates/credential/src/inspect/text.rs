//! The text form of an inspection.

use std::fmt;

use super::{BundleFacts, DocumentFacts, Inspection, TimeFacts};

/// One row for each fact, and two lines for each finding. Ends with a line break.
impl fmt::Display for Inspection {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let document = self.document.iter().flat_map(document_rows);
        let bundle = self.bundle.iter().flat_map(bundle_rows);
        let times = self.times.iter().flat_map(time_rows);
        let content = ("content", format!("sha256 {}", self.content_hash));
        for (name, value) in document.chain(bundle).chain(times).chain([content]) {
            writeln!(formatter, "  {name:<12}{value}")?;
        }
        for finding in &self.findings {
            writeln!(formatter, "{}: {}: {}", finding.severity, finding.field, finding.what)?;
            writeln!(formatter, "  hint: {}", finding.next_step)?;
        }
        Ok(())
    }
}

type Row = (&'static str, String);

fn document_rows(facts: &DocumentFacts) -> Vec<Row> {
    let mut rows = vec![("keys", facts.keys.join(", "))];
    if !facts.unknown_keys.is_empty() {
        rows.push(("unknown", facts.unknown_keys.join(", ")));
    }
    rows.extend(facts.client_id.as_ref().map(|id| ("client", id.to_string())));
    rows.extend(facts.tenant_id.as_ref().map(|id| ("tenant", id.to_string())));
    rows.extend(facts.token_endpoint.clone().map(|endpoint| ("endpoint", endpoint)));
    rows.extend(facts.resource_id.clone().map(|id| ("identity", id)));
    rows
}

fn bundle_rows(facts: &BundleFacts) -> Vec<Row> {
    let mut rows = Vec::new();
    rows.extend(facts.format.map(|format| ("bundle", format.to_string())));
    rows.extend(facts.key.as_ref().map(|key| {
        let bits = key.bits.map(|bits| format!(" {bits} bits")).unwrap_or_default();
        let curve = key.curve.as_ref().map(|curve| format!(" {curve}")).unwrap_or_default();
        ("key", format!("{}{bits}{curve}", key.kind))
    }));
    for certificate in &facts.certificates {
        let validity = certificate.validity;
        rows.push(("certificate", format!("{}, by {}", certificate.subject, certificate.issuer)));
        rows.push(("", format!("{} to {}", validity.not_before, validity.not_after)));
        rows.push(("", format!("sha256 {}", certificate.sha256)));
    }
    rows
}

fn time_rows(facts: &TimeFacts) -> Vec<Row> {
    let stamps = &facts.timestamps;
    let times = [
        ("expires", facts.expires_at, facts.seconds_to_expiry),
        ("renew after", stamps.renew_after, facts.seconds_to_renew_after),
        ("renew until", stamps.cannot_renew_after, facts.seconds_to_cannot_renew_after),
    ];
    let row = |(name, at, seconds): (_, Option<_>, Option<i64>)| {
        Some((name, format!("{}, {}", at?, relative_time(seconds?))))
    };
    times.into_iter().filter_map(row).collect()
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
