//! The table of operations: it routes requests, provides the coverage listing, and suggests the nearest known
//! operation for an unknown one.

use std::borrow::Cow;
use std::collections::HashMap;

use http::Method;
use lanyard_emulator_state::request::{ServiceReply, ServiceRequest};
use serde::Serialize;

use crate::operation_context::OperationContext;
use crate::path_parameters::{PathParameters, RoutePart, match_parts};

/// How completely an operation is implemented.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case", tag = "support", content = "note")]
pub enum OperationSupport {
    /// Everything that clients can observe.
    Full,
    /// Less than Azure: the note names what is missing.
    Partial(&'static str),
    /// Resources are stored and returned as given, without the rules of their type.
    Echo,
}

/// The handler of an operation. `Err` is a rejection: a reply without a change of state.
pub type OperationHandler = fn(&mut OperationContext<'_>) -> Result<ServiceReply, ServiceReply>;

/// Decides by the head of a request whether its body may be large: authenticates the caller, and returns the maximum
/// size in bytes.
pub type LargeBodyAdmission =
    fn(&mut OperationContext<'_>, &ServiceOperation) -> Result<usize, ServiceReply>;

/// One operation that the emulator implements.
#[derive(Debug, Clone)]
pub struct ServiceOperation {
    /// A stable id, such as `Vaults_Get`.
    pub id: &'static str,
    /// The method; `GET` also handles `HEAD`, unless the table has a row for it.
    pub method: Method,
    /// The path: `{name}` matches one segment, `{*name}` (once) any number, including none. Literals match
    /// ignoring case.
    ///
    /// Conditions may follow a `?`, separated by `&`: `comp=list` is a query parameter with its value, `!comp`
    /// the absence of a parameter, and `[x-ms-copy-source]` the presence of a header.
    pub path: &'static str,
    /// How completely the operation is implemented.
    pub support: OperationSupport,
    pub handler: OperationHandler,
}

/// The outcome of looking up a request in a table.
#[derive(Debug)]
pub enum OperationLookup<'r> {
    /// The operation and the values of its placeholders.
    Found(&'static ServiceOperation, PathParameters<'r>),
    /// No operation matches; the nearest known one, if any.
    NotFound(Option<&'static ServiceOperation>),
}

/// The operations of a service, prepared for look-ups. The first matching row wins.
#[derive(Debug)]
pub struct RouteTable {
    /// The routes without `{*name}`, by method and number of segments, in the order of their rows.
    by_length: HashMap<(Method, usize), Vec<Route>>,
    /// The routes with `{*name}`, by method.
    open_ended: HashMap<Method, Vec<Route>>,
    rows: Vec<&'static ServiceOperation>,
}

/// A row with its path in segments.
#[derive(Debug)]
struct Route {
    /// The number of the row.
    order: usize,
    row: &'static ServiceOperation,
    parts: Vec<RoutePart>,
    conditions: Vec<RouteCondition>,
}

/// A condition on the request beyond its path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum RouteCondition {
    QueryValue(&'static str, &'static str),
    NoQueryParameter(&'static str),
    Header(&'static str),
}

impl RouteCondition {
    fn parse(condition: &'static str) -> Self {
        if let Some(name) = condition.strip_prefix('!') {
            return Self::NoQueryParameter(name);
        }
        if let Some(header) = condition.strip_prefix('[').and_then(|it| it.strip_suffix(']')) {
            return Self::Header(header);
        }
        let (name, value) = condition.split_once('=').unwrap_or((condition, ""));
        Self::QueryValue(name, value)
    }

    fn holds(self, request: &ServiceRequest) -> bool {
        match self {
            Self::QueryValue(name, value) => {
                request.query(name).is_some_and(|given| given.eq_ignore_ascii_case(value))
            }
            Self::NoQueryParameter(name) => request.query(name).is_none(),
            Self::Header(name) => request.headers.contains_key(name),
        }
    }
}

impl RouteTable {
    /// Prepares the rows of a service.
    pub fn new(rows: impl IntoIterator<Item = &'static ServiceOperation>) -> Self {
        let rows: Vec<_> = rows.into_iter().collect();
        let mut by_length: HashMap<_, Vec<Route>> = HashMap::new();
        let mut open_ended: HashMap<_, Vec<Route>> = HashMap::new();
        for (order, row) in rows.iter().copied().enumerate() {
            let parts: Vec<_> = row.literal_path().map(RoutePart::parse).collect();
            let is_open = parts.iter().any(|part| matches!(part, RoutePart::AnySegments(_)));
            let routes = if is_open {
                open_ended.entry(row.method.clone()).or_default()
            } else {
                by_length.entry((row.method.clone(), parts.len())).or_default()
            };
            let conditions = row.conditions().map(RouteCondition::parse).collect();
            routes.push(Route { order, row, parts, conditions });
        }
        Self { by_length, open_ended, rows }
    }

    /// All rows, in their order.
    pub fn rows(&self) -> impl Iterator<Item = &'static ServiceOperation> {
        self.rows.iter().copied()
    }

    /// Finds the operation of a request with these decoded path segments. Without a row of its own,
    /// `HEAD` is handled as `GET`.
    pub fn find<'r>(
        &self,
        request: &ServiceRequest,
        segments: &[Cow<'r, str>],
    ) -> OperationLookup<'r> {
        let method = &request.method;
        self.find_exact(method, request, segments)
            .or_else(|| {
                (*method == Method::HEAD)
                    .then(|| self.find_exact(&Method::GET, request, segments))?
            })
            .unwrap_or_else(|| OperationLookup::NotFound(self.nearest(method, segments)))
    }

    fn find_exact<'r>(
        &self,
        method: &Method,
        request: &ServiceRequest,
        segments: &[Cow<'r, str>],
    ) -> Option<OperationLookup<'r>> {
        let first_match = |routes: Option<&'_ Vec<Route>>| {
            routes.into_iter().flatten().find_map(|route| {
                if !route.conditions.iter().all(|condition| condition.holds(request)) {
                    return None;
                }
                Some((route.order, route.row, match_parts(&route.parts, segments)?))
            })
        };
        let closed = first_match(self.by_length.get(&(method.clone(), segments.len())));
        let open = first_match(self.open_ended.get(method));
        let (_, row, parameters) =
            closed.into_iter().chain(open).min_by_key(|(order, ..)| *order)?;
        Some(OperationLookup::Found(row, parameters))
    }

    /// The known operation that is most like an unknown one: of the same resource type or at least the same
    /// resource provider, and of the same method or a read. So the hint is never a write or a purge in place
    /// of a read.
    fn nearest(
        &self,
        method: &Method,
        segments: &[Cow<'_, str>],
    ) -> Option<&'static ServiceOperation> {
        let subject: Vec<_> = operation_subject(segments.iter().map(|it| &**it)).collect();
        let names_provider = subject.len() < segments.len();
        self.rows
            .iter()
            .copied()
            .filter(|row| row.method == *method || row.method == Method::GET)
            .filter_map(|row| {
                let known: Vec<_> = operation_subject(row.literal_path()).collect();
                let is_same = |one: Option<&&str>, other: Option<&&str>| {
                    one.zip(other).is_some_and(|(one, other)| one.eq_ignore_ascii_case(other))
                };
                if names_provider && !is_same(known.first(), subject.first()) {
                    return None;
                }
                let shared = known
                    .iter()
                    .filter(|part| subject.iter().any(|segment| part.eq_ignore_ascii_case(segment)))
                    .count();
                if shared == 0 {
                    return None;
                }
                let distance = row.literal_path().count().abs_diff(segments.len());
                Some((shared, row.method == *method, usize::MAX - distance, row))
            })
            .max_by_key(|(shared, same_method, closeness, _)| (*shared, *same_method, *closeness))
            .map(|(.., row)| row)
    }
}

impl ServiceOperation {
    /// The segments of the path.
    fn literal_path(&self) -> impl Iterator<Item = &'static str> + Clone + use<> {
        let path = self.path.split_once('?').map_or(self.path, |(path, _)| path);
        path.split('/').filter(|part| !part.is_empty())
    }

    /// The path with the query parameters and headers that select the operation.
    pub fn displayed_path(&self) -> String {
        let path = self.path.split_once('?').map_or(self.path, |(path, _)| path);
        let (mut query, mut headers) = (String::new(), String::new());
        for condition in self.conditions().map(RouteCondition::parse) {
            match condition {
                RouteCondition::QueryValue(name, value) => {
                    let separator = if query.is_empty() { "?" } else { "&" };
                    query.extend([separator, name, "=", value]);
                }
                RouteCondition::Header(name) => headers.extend([" with ", name]),
                RouteCondition::NoQueryParameter(_) => {}
            }
        }
        format!("{path}{query}{headers}")
    }

    /// The conditions after the path.
    fn conditions(&self) -> impl Iterator<Item = &'static str> + use<> {
        self.path.split_once('?').map(|(_, conditions)| conditions.split('&')).into_iter().flatten()
    }
}

/// The segments after the last `providers`, which start with the resource provider; all segments if
/// the path names no resource provider.
fn operation_subject<'a>(
    segments: impl Iterator<Item = &'a str> + Clone,
) -> impl Iterator<Item = &'a str> {
    let provider = segments
        .clone()
        .enumerate()
        .filter(|(_, segment)| segment.eq_ignore_ascii_case("providers"))
        .map(|(at, _)| at + 1)
        .last();
    segments.skip(provider.unwrap_or(0))
}

#[cfg(test)]
mod tests;
