//! The table of operations: it routes requests, provides the coverage listing, and suggests the nearest known
//! operation for an unknown one.

use http::Method;
use serde::{Deserialize, Serialize};

use crate::operation_context::OperationContext;
use crate::request::ServiceReply;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum AzureService {
    /// The token service.
    Entra,
    /// The instance metadata service of a machine.
    Imds,
    /// The token endpoint of App Service.
    #[serde(rename = "app-service")]
    AppService,
    /// Azure Resource Manager.
    Arm,
    /// The data plane of vaults.
    KeyVault,
    /// Microsoft Graph.
    Graph,
    /// The data plane of storage accounts.
    Blob,
    /// The emulator's own control API.
    Control,
}

impl AzureService {
    /// Every service.
    pub(crate) const ALL: [Self; 8] = [
        Self::Entra,
        Self::Imds,
        Self::AppService,
        Self::Arm,
        Self::KeyVault,
        Self::Graph,
        Self::Blob,
        Self::Control,
    ];

    /// The name in the ledger and in listings.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Entra => "entra",
            Self::Imds => "imds",
            Self::AppService => "app-service",
            Self::Arm => "arm",
            Self::KeyVault => "key-vault",
            Self::Graph => "graph",
            Self::Blob => "blob",
            Self::Control => "control",
        }
    }
}

/// How completely an operation is implemented.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case", tag = "support", content = "note")]
pub(crate) enum OperationSupport {
    /// Everything that clients can observe.
    Full,
    /// Less than Azure: the note names what is missing.
    Partial(&'static str),
}

/// The handler of an operation. `Err` is a rejection: a reply without a change of state.
pub(crate) type OperationHandler =
    fn(&mut OperationContext<'_>) -> Result<ServiceReply, ServiceReply>;

/// One operation that the emulator implements.
#[derive(Debug, Clone)]
pub(crate) struct ServiceOperation {
    /// A stable id, such as `Vaults_Get`.
    pub(crate) id: &'static str,
    /// The method; `GET` also handles `HEAD`, unless the table has a row for it.
    pub(crate) method: Method,
    /// The path: `{name}` matches one segment, `{*name}` (once) any number, including none. Literals match
    /// ignoring case.
    pub(crate) path: &'static str,
    /// How completely the operation is implemented.
    pub(crate) support: OperationSupport,
    pub(crate) handler: OperationHandler,
}

/// The values of the placeholders of a path.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct PathParameters(Vec<(&'static str, String)>);

impl PathParameters {
    /// The value of a placeholder; empty if the path has no such placeholder. The segments of a `{*name}` are
    /// joined by `/`.
    pub(crate) fn value(&self, name: &str) -> &str {
        self.0.iter().find_map(|(key, value)| (*key == name).then_some(&**value)).unwrap_or("")
    }
}

/// The outcome of looking up a request in a table.
#[derive(Debug)]
pub(crate) enum OperationLookup {
    /// The operation and the values of its placeholders.
    Found(&'static ServiceOperation, PathParameters),
    /// No operation matches; the nearest known one, if any.
    NotFound(Option<&'static ServiceOperation>),
}

/// Finds the operation of a request. The first matching row wins.
pub(crate) fn find_operation(
    groups: &'static [&'static [ServiceOperation]],
    method: &Method,
    segments: &[String],
) -> OperationLookup {
    let rows = || groups.iter().copied().flatten();
    let find = |method: &Method| {
        rows().filter(|row| row.method == *method).find_map(|row| {
            match_path(row.path, segments).map(|parameters| OperationLookup::Found(row, parameters))
        })
    };
    find(method)
        .or_else(|| (*method == Method::HEAD).then(|| find(&Method::GET)).flatten())
        .unwrap_or_else(|| OperationLookup::NotFound(nearest_operation(rows(), method, segments)))
}

fn template_segments(path: &'static str) -> Vec<&'static str> {
    path.split('/').filter(|part| !part.is_empty()).collect()
}

fn placeholder_name(part: &'static str) -> Option<&'static str> {
    part.strip_prefix('{')?.strip_suffix('}')
}

fn match_path(path: &'static str, segments: &[String]) -> Option<PathParameters> {
    let parts = template_segments(path);
    let wild = parts.iter().position(|part| part.starts_with("{*"));
    let mut values = Vec::new();
    let Some(wild) = wild else {
        return (parts.len() == segments.len() && match_segments(&parts, segments, &mut values))
            .then_some(PathParameters(values));
    };
    let after = parts.len() - wild - 1;
    if segments.len() < wild + after {
        return None;
    }
    let (head, rest) = segments.split_at(wild);
    let (middle, tail) = rest.split_at(rest.len() - after);
    if !match_segments(&parts[..wild], head, &mut values)
        || !match_segments(&parts[wild + 1..], tail, &mut values)
    {
        return None;
    }
    let name = placeholder_name(parts[wild]).unwrap_or_default().trim_start_matches('*');
    values.push((name, middle.join("/")));
    Some(PathParameters(values))
}

fn match_segments(
    parts: &[&'static str],
    segments: &[String],
    values: &mut Vec<(&'static str, String)>,
) -> bool {
    parts.iter().zip(segments).all(|(part, segment)| match placeholder_name(part) {
        Some(name) => {
            values.push((name, segment.clone()));
            true
        }
        None => part.eq_ignore_ascii_case(segment),
    })
}

/// The row with the most literals in common with the path, then with the method.
fn nearest_operation<'a>(
    rows: impl Iterator<Item = &'a ServiceOperation>,
    method: &Method,
    segments: &[String],
) -> Option<&'a ServiceOperation> {
    rows.map(|row| {
        let shared = template_segments(row.path)
            .iter()
            .filter(|part| segments.iter().any(|segment| part.eq_ignore_ascii_case(segment)))
            .count();
        let excess = template_segments(row.path).len().abs_diff(segments.len());
        (shared, row.method == *method, usize::MAX - excess, row)
    })
    .filter(|(shared, ..)| *shared > 0)
    .max_by_key(|(shared, same_method, closeness, _)| (*shared, *same_method, *closeness))
    .map(|(.., row)| row)
}

#[cfg(test)]
mod tests;
