//! The placeholders of an operation's path, and their values in a request.

use std::borrow::Cow;

/// A segment of an operation's path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RoutePart {
    Literal(&'static str),
    Segment(&'static str),
    AnySegments(&'static str),
}

impl RoutePart {
    /// Parses a segment, such as `{name}` or `{*name}`.
    pub(crate) fn parse(part: &'static str) -> Self {
        match part.strip_prefix('{').and_then(|part| part.strip_suffix('}')) {
            None => Self::Literal(part),
            Some(name) => match name.strip_prefix('*') {
                None => Self::Segment(name),
                Some(name) => Self::AnySegments(name),
            },
        }
    }
}

/// The values of the placeholders of a request's path. The value of a `{name}` that is a segment as sent borrows from
/// the request; other values are copies.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PathParameters<'r>(pub(crate) Vec<(&'static str, Cow<'r, str>)>);

impl PathParameters<'_> {
    /// The value of a placeholder; empty if the path has no such placeholder. The segments of a `{*name}` are
    /// joined by `/`.
    pub fn value(&self, name: &str) -> &str {
        self.0.iter().find_map(|(key, value)| (*key == name).then_some(&**value)).unwrap_or("")
    }
}

/// Compares the segments of a request's path with those of an operation. `None` if they differ.
pub(crate) fn match_parts<'r>(
    parts: &[RoutePart],
    segments: &[Cow<'r, str>],
) -> Option<PathParameters<'r>> {
    let mut values = Vec::new();
    let open = parts.iter().position(|part| matches!(part, RoutePart::AnySegments(_)));
    let Some(open) = open else {
        return (parts.len() == segments.len() && match_segments(parts, segments, &mut values))
            .then_some(PathParameters(values));
    };
    let after = parts.len() - open - 1;
    if segments.len() < open + after {
        return None;
    }
    let (head, rest) = segments.split_at(open);
    let (middle, tail) = rest.split_at(rest.len() - after);
    if !match_segments(&parts[..open], head, &mut values)
        || !match_segments(&parts[open + 1..], tail, &mut values)
    {
        return None;
    }
    if let RoutePart::AnySegments(name) = parts[open] {
        values.push((name, Cow::Owned(middle.join("/"))));
    }
    Some(PathParameters(values))
}

/// Compares from the end, where the paths of a service differ most.
fn match_segments<'r>(
    parts: &[RoutePart],
    segments: &[Cow<'r, str>],
    values: &mut Vec<(&'static str, Cow<'r, str>)>,
) -> bool {
    let is_match = parts.iter().zip(segments).rev().all(|(part, segment)| match part {
        RoutePart::Literal(literal) => literal.eq_ignore_ascii_case(segment),
        RoutePart::Segment(_) | RoutePart::AnySegments(_) => true,
    });
    if is_match {
        values.extend(parts.iter().zip(segments).filter_map(|(part, segment)| match part {
            RoutePart::Segment(name) => Some((*name, segment.clone())),
            RoutePart::Literal(_) | RoutePart::AnySegments(_) => None,
        }));
    }
    is_match
}
