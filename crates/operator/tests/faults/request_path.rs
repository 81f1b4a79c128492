//! Parses the path and the query of a request.

use http::{Method, Uri};

/// The relevant parts of a request's path and query.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct RequestPath {
    /// The plural name of the resource.
    pub(crate) collection: String,
    pub(crate) namespace: String,
    pub(crate) name: String,
    /// For example `status`.
    pub(crate) subresource: Option<String>,
    pub(crate) labels: Option<String>,
    /// The name in the field selector.
    pub(crate) name_filter: Option<String>,
    /// The field manager of a write.
    pub(crate) field_manager: String,
    /// The version to watch from.
    pub(crate) version: Option<u64>,
    is_watch: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RequestVerb {
    List,
    Watch,
    Get,
    Create,
    /// An access review, which the API server does not store.
    Review,
    Patch,
    Delete,
    Other,
}

impl RequestPath {
    pub(crate) fn parse(uri: &Uri) -> Self {
        let mut parts = uri.path().trim_matches('/').split('/');
        // `api/v1` or `apis/group/version`
        let skipped = if parts.next() == Some("api") { 1 } else { 2 };
        let mut rest: Vec<&str> = parts.skip(skipped).collect();
        let mut path = Self::default();
        if rest.first() == Some(&"namespaces") && rest.len() > 2 {
            path.namespace = rest[1].to_owned();
            rest.drain(..2);
        }
        let part = |place: usize| rest.get(place).map(|part| (*part).to_owned());
        path.collection = part(0).unwrap_or_default();
        path.name = part(1).unwrap_or_default();
        path.subresource = part(2);
        for pair in uri.query().unwrap_or_default().split('&') {
            match pair.split_once('=') {
                Some(("watch", "true")) => path.is_watch = true,
                Some(("resourceVersion", version)) => path.version = version.parse().ok(),
                Some(("labelSelector", labels)) => path.labels = Some(percent_decoded(labels)),
                Some(("fieldSelector", field)) => {
                    path.name_filter =
                        percent_decoded(field).strip_prefix("metadata.name=").map(str::to_owned);
                }
                Some(("fieldManager", manager)) => path.field_manager = percent_decoded(manager),
                _ => {}
            }
        }
        path
    }
}

fn percent_decoded(text: &str) -> String {
    text.replace("%3D", "=").replace("%2F", "/")
}

impl RequestVerb {
    pub(crate) fn of(method: &Method, path: &RequestPath) -> Self {
        match (method.as_str(), path.name.is_empty()) {
            ("GET", true) if path.is_watch => Self::Watch,
            ("GET", true) => Self::List,
            ("GET", false) => Self::Get,
            ("POST", _) if path.collection == "selfsubjectaccessreviews" => Self::Review,
            ("POST", _) => Self::Create,
            ("PATCH", false) => Self::Patch,
            ("DELETE", false) => Self::Delete,
            _ => Self::Other,
        }
    }

    pub(crate) const fn is_write(self) -> bool {
        matches!(self, Self::Create | Self::Patch | Self::Delete)
    }
}
