//! Prints the request log as a table.

use comfy_table::Table;
use comfy_table::presets::ASCII_MARKDOWN;
use lanyard_emulator::RequestLogEntry;

/// Formats one row per request, and the number of requests for unimplemented operations.
pub(super) fn request_log_table(entries: &[RequestLogEntry]) -> String {
    if entries.is_empty() {
        return "no request reached the local Azure".to_owned();
    }
    let mut table = Table::new();
    table.load_style(ASCII_MARKDOWN);
    table.set_header(["#", "service", "request", "status", "tls", "caller", "refused because"]);
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
    let requests = entries.len();
    format!("{table}\n{requests} requests, {missing} of operations that the local Azure lacks")
}
