//! Formats the identities as a table, in the style of `kubectl get`.

use jiff::Timestamp;

use super::IdentityRow;
use crate::output::{ColumnKind, TextTable};

const HEADER: [&str; 8] = [
    "NAMESPACE",
    "HOSTEDCLUSTER",
    "IDENTITY",
    "READY",
    "LAST GOOD HOP",
    "VERSION",
    "EXPIRES",
    "REASON",
];

/// Formats a row for each identity, and below the table the messages of those that are not ready.
pub(super) fn render(rows: &[IdentityRow<'_>], line_width: Option<usize>) -> String {
    let mut table =
        TextTable::new(HEADER.map(|header| (ColumnKind::Name, header))).with_key_columns(3);
    for row in rows {
        table.add_row(cells(row));
    }
    let mut text = table.render(line_width);
    let with_message = rows.iter().filter(|row| !row.identity.message.is_empty());
    for (index, row) in with_message.enumerate() {
        text.push_str(if index == 0 { "\n\n" } else { "\n" });
        text.push_str(&message_line(row));
    }
    text
}

fn message_line(row: &IdentityRow<'_>) -> String {
    let IdentityRow { namespace, hosted_cluster, identity } = row;
    let since = identity.since.map(|since| format!(" since {since}")).unwrap_or_default();
    format!("{namespace}/{hosted_cluster} {}{since}: {}", identity.component, identity.message)
}

fn cells(row: &IdentityRow<'_>) -> [String; 8] {
    let identity = &row.identity;
    [
        row.namespace.to_owned(),
        row.hosted_cluster.to_owned(),
        identity.component.clone(),
        identity.ready.clone(),
        identity.last_good_hop.clone().unwrap_or_else(placeholder),
        identity.loaded_version.as_deref().map_or_else(placeholder, short_version),
        identity.not_after.map_or_else(placeholder, format_minute),
        identity.reason.clone(),
    ]
}

fn placeholder() -> String {
    "-".to_owned()
}

/// Vault versions have 32 digits; the first 8 are enough to compare them.
fn short_version(version: &str) -> String {
    version.chars().take(8).collect()
}

/// Formats a time to the minute, in UTC.
fn format_minute(at: Timestamp) -> String {
    at.strftime("%Y-%m-%d %H:%MZ").to_string()
}

#[cfg(test)]
mod tests {
    use lanyard_api::hosted_cluster_identities::IdentityStatus;

    use super::*;

    #[test]
    fn identities_that_are_not_ready_are_explained_below_the_table() {
        let good = IdentityStatus {
            component: "disk".to_owned(),
            ready: "True".to_owned(),
            reason: "AsExpected".to_owned(),
            last_good_hop: Some("granted".to_owned()),
            loaded_version: Some("0123456789abcdef0123456789abcdef".to_owned()),
            not_after: Some("2026-12-24T18:30:59Z".parse().unwrap()),
            ..IdentityStatus::default()
        };
        let bad = IdentityStatus {
            component: "kms".to_owned(),
            ready: "False".to_owned(),
            reason: "AADSTS700027".to_owned(),
            message: "could not get a token: the certificate is not known; register it".to_owned(),
            last_good_hop: Some("credential".to_owned()),
            since: Some("2026-11-21T10:00:00Z".parse().unwrap()),
            ..IdentityStatus::default()
        };
        let row = |identity| {
            let identity = std::borrow::Cow::Borrowed(identity);
            IdentityRow { namespace: "clusters", hosted_cluster: "harbour", identity }
        };
        insta::assert_snapshot!(render(&[row(&good), row(&bad)], None));
    }
}
