//! `OData` paths: keys in parentheses become segments, so that both forms of a key have the same routes.

use std::borrow::Cow;

use uuid::Uuid;

/// The prefix of qualified names of types, actions and functions.
const NAMESPACE: &str = "microsoft.graph.";

/// The segments of an `OData` path from those of a request's path. `users('ada')` is two segments, as is `users/ada`;
/// `applications(appId='…')` is `applications` and `appId='…'`. Qualified names lose their namespace.
pub(crate) fn odata_segments<'r>(of_path: impl Iterator<Item = Cow<'r, str>>) -> Vec<Cow<'r, str>> {
    let mut segments = Vec::new();
    for segment in of_path {
        let (name, key) = split_key(&segment);
        let is_qualified =
            name.get(..NAMESPACE.len()).is_some_and(|start| start.eq_ignore_ascii_case(NAMESPACE));
        let name = if is_qualified { &name[NAMESPACE.len()..] } else { name };
        if name.len() == segment.len() {
            segments.push(segment);
        } else {
            segments.push(Cow::Owned(name.to_owned()));
        }
        segments.extend(key.map(Cow::Owned));
    }
    segments
}

/// Splits `name(key)`; the parentheses of a function without arguments are dropped. An empty key keeps its
/// quotes, because a path has no empty segments.
fn split_key(segment: &str) -> (&str, Option<String>) {
    let parts = segment.strip_suffix(')').and_then(|start| start.split_once('('));
    match parts {
        Some((name, "")) if !name.is_empty() => (name, None),
        Some((name, key)) if !name.is_empty() => {
            let value = unquote(key).filter(|value| !value.is_empty());
            (name, Some(value.unwrap_or_else(|| key.to_owned())))
        }
        _ => (segment, None),
    }
}

/// The value of an `OData` string literal such as `'O''Neil'`.
fn unquote(literal: &str) -> Option<String> {
    let inner = literal.strip_prefix('\'')?.strip_suffix('\'')?;
    let parts: Vec<_> = inner.split("''").collect();
    parts.iter().all(|part| !part.contains('\'')).then(|| parts.join("'"))
}

/// The collection at the start of a path, or `/me`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PathCollection {
    Applications,
    DirectoryObjects,
    Groups,
    /// The signed-in user.
    Me,
    ServicePrincipals,
    Users,
}

impl PathCollection {
    /// The collection of a path of Microsoft Graph, by the segment after the version. `None` for the others,
    /// such as `domains`.
    pub(super) fn of_path<'r>(path: impl Iterator<Item = Cow<'r, str>>) -> Option<Self> {
        let name = odata_segments(path).into_iter().nth(1)?;
        let collections = [
            ("applications", Self::Applications),
            ("directoryObjects", Self::DirectoryObjects),
            ("groups", Self::Groups),
            ("me", Self::Me),
            ("servicePrincipals", Self::ServicePrincipals),
            ("users", Self::Users),
        ];
        let found = collections.into_iter().find(|(known, _)| name.eq_ignore_ascii_case(known));
        found.map(|(_, collection)| collection)
    }
}

/// The key of an object in a path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum ObjectKey<'a> {
    /// The object id.
    ObjectId(Uuid),
    /// `name='value'`, for example `appId='…'`.
    Alternate(&'a str, String),
    /// Other text, for example a user principal name.
    Text(&'a str),
}

impl<'a> ObjectKey<'a> {
    pub(super) fn parse(segment: &'a str) -> Self {
        if let Some(id) = parse_object_id(segment) {
            return Self::ObjectId(id);
        }
        let alternate = segment.split_once('=').and_then(|(name, literal)| {
            Some(Self::Alternate(name.trim(), unquote(literal.trim())?))
        });
        alternate.unwrap_or(Self::Text(segment))
    }

    /// The value of the alternate key `name`.
    pub(super) fn alternate(&self, name: &str) -> Option<&str> {
        match self {
            Self::Alternate(known, value) if known.eq_ignore_ascii_case(name) => Some(value),
            _ => None,
        }
    }
}

/// Parses an object id: a GUID with hyphens.
pub(super) fn parse_object_id(text: &str) -> Option<Uuid> {
    (text.len() == 36).then(|| Uuid::try_parse(text).ok())?
}

/// The object id in a reference such as `https://graph.microsoft.com/v1.0/directoryObjects/{id}`: the last
/// GUID of its path.
pub(super) fn referenced_object_id(reference: &str) -> Option<Uuid> {
    let url = url::Url::parse(reference).ok()?;
    let is_separator = |c: char| matches!(c, '/' | '(' | ')' | '\'');
    url.path().rsplit(is_separator).find_map(parse_object_id)
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID: &str = "6d97229a-391f-473a-893f-f0608b592d7b";

    fn segments(path: &str) -> Vec<Cow<'_, str>> {
        odata_segments(path.split('/').skip(1).map(Cow::Borrowed))
    }

    #[test]
    fn keys_in_parentheses_become_segments() {
        let cases: [(&str, &[&str]); 10] = [
            ("/v1.0/users/a@b.test", &["v1.0", "users", "a@b.test"]),
            ("/v1.0/users('a@b.test')", &["v1.0", "users", "a@b.test"]),
            ("/v1.0/users('$a')/memberOf", &["v1.0", "users", "$a", "memberOf"]),
            ("/v1.0/users('O''Neil@b.test')", &["v1.0", "users", "O'Neil@b.test"]),
            (
                "/beta/applications(appId='x')/addKey",
                &["beta", "applications", "appId='x'", "addKey"],
            ),
            (
                "/v1.0/directoryObjects/microsoft.graph.getByIds",
                &["v1.0", "directoryObjects", "getByIds"],
            ),
            ("/v1.0/users/delta()", &["v1.0", "users", "delta"]),
            ("/v1.0/users('')", &["v1.0", "users", "''"]),
            ("/v1.0/users('')/memberOf", &["v1.0", "users", "''", "memberOf"]),
            ("/v1.0/groups/g/members/$ref", &["v1.0", "groups", "g", "members", "$ref"]),
        ];
        for (path, expected) in cases {
            assert_eq!(segments(path), expected, "{path}");
        }
    }

    #[test]
    fn collection_is_the_segment_after_the_version() {
        let collection =
            |path: &str| PathCollection::of_path(path.split('/').skip(1).map(Cow::Borrowed));
        for (path, expected) in [
            ("/v1.0/me/memberOf", Some(PathCollection::Me)),
            ("/v1.0/Users('me')", Some(PathCollection::Users)),
            ("/beta/serviceprincipals(appId='x')/owners", Some(PathCollection::ServicePrincipals)),
            ("/v1.0/domains/me", None),
            ("/v1.0", None),
        ] {
            assert_eq!(collection(path), expected, "{path}");
        }
    }

    #[test]
    fn keys_are_object_ids_alternate_keys_or_text() {
        let id = ID.parse().unwrap();
        let cases = [
            (ID, ObjectKey::ObjectId(id)),
            ("appId='a''b'", ObjectKey::Alternate("appId", "a'b".to_owned())),
            ("a@b.test", ObjectKey::Text("a@b.test")),
            ("a=b", ObjectKey::Text("a=b")),
            (
                "{6d97229a-391f-473a-893f-f0608b592d7b}",
                ObjectKey::Text("{6d97229a-391f-473a-893f-f0608b592d7b}"),
            ),
        ];
        for (text, expected) in cases {
            assert_eq!(ObjectKey::parse(text), expected, "{text}");
        }
    }

    #[test]
    fn references_name_an_object_in_every_form() {
        for reference in [
            format!("https://graph.microsoft.com/v1.0/directoryObjects/{ID}"),
            format!("https://graph.microsoft.com/v1.0/users('{ID}')"),
            format!(
                "https://graph.microsoft.com/v2/11111111-0000-4000-8000-000000000001/directoryObjects/{ID}/Microsoft.DirectoryServices.User"
            ),
        ] {
            assert_eq!(referenced_object_id(&reference), ID.parse().ok(), "{reference}");
        }
        assert_eq!(referenced_object_id(ID), None);
        assert_eq!(referenced_object_id("https://graph.microsoft.com/v1.0/users/ada"), None);
    }
}
