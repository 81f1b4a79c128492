//! A command's data as a document.

use serde::Serialize;

/// The form of a command's data.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Format {
    /// A table for people.
    Table,
    /// One JSON document.
    Json,
    /// One YAML document.
    Yaml,
}

/// A value as a document.
pub(crate) fn document(value: &impl Serialize, format: Format) -> String {
    match format {
        Format::Yaml => serde_saphyr::to_string(value).unwrap_or_else(|error| error.to_string()),
        Format::Table | Format::Json => {
            serde_json::to_string_pretty(value).unwrap_or_else(|error| error.to_string())
        }
    }
}
