//! Prints the request log as a table.

use lanyard_emulator::RequestLogEntry;

use crate::output::{ColumnKind, TextTable, counted};

/// Formats one row per request, and the number of requests for unimplemented operations.
pub(super) fn request_log_table(entries: &[RequestLogEntry], line_width: Option<usize>) -> String {
    if entries.is_empty() {
        return "no request reached the local Azure".to_owned();
    }
    let mut table = TextTable::new([
        (ColumnKind::Number, "#"),
        (ColumnKind::Name, "SERVICE"),
        (ColumnKind::Identifier, "REQUEST"),
        (ColumnKind::Number, "STATUS"),
        (ColumnKind::Name, "TLS"),
        (ColumnKind::Identifier, "CALLER"),
        (ColumnKind::Text, "REFUSED BECAUSE"),
    ]);
    for entry in entries {
        table.add_row([
            entry.sequence.to_string(),
            entry.service.unwrap_or("-").to_owned(),
            format!("{} {}{}", entry.method, entry.host, entry.path),
            entry.status.to_string(),
            if entry.tls { "yes" } else { "no" }.to_owned(),
            entry.caller.map_or_else(|| "-".to_owned(), |caller| caller.to_string()),
            entry.rejection.clone().unwrap_or_default(),
        ]);
    }
    let missing = entries.iter().filter(|entry| entry.missing).count();
    format!(
        "{}\n\n{}, {missing} of operations that the local Azure lacks",
        table.render(line_width),
        counted(entries.len(), "request")
    )
}
