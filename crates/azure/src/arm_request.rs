//! A request to Azure Resource Manager.

use std::borrow::Cow;

use azure_core::http::{Method, Url};
use serde_json::Value;

use crate::service_url::append_query;

/// A request to Azure Resource Manager: everything but the cloud and the identity.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ArmRequest {
    /// The HTTP method.
    pub method: Method,
    /// The path: a resource id, or a collection or an action below one. It begins with `/`.
    pub path: String,
    /// The API version, for example `2024-11-30`.
    pub api_version: Cow<'static, str>,
    /// Further parameters of the query, not encoded.
    pub query: Vec<(Cow<'static, str>, String)>,
    /// The JSON body.
    pub body: Option<Value>,
    /// `If-Match`: the request fails with 412 if the resource has another etag.
    pub if_match: Option<String>,
    /// `If-None-Match`: with `*`, the request fails with 412 if the resource exists.
    pub if_none_match: Option<String>,
}

impl ArmRequest {
    /// A GET request.
    pub fn get(path: impl Into<String>, api_version: impl Into<Cow<'static, str>>) -> Self {
        Self::new(Method::Get, path.into(), api_version.into(), None)
    }

    /// A HEAD request.
    pub fn head(path: impl Into<String>, api_version: impl Into<Cow<'static, str>>) -> Self {
        Self::new(Method::Head, path.into(), api_version.into(), None)
    }

    /// A DELETE request.
    pub fn delete(path: impl Into<String>, api_version: impl Into<Cow<'static, str>>) -> Self {
        Self::new(Method::Delete, path.into(), api_version.into(), None)
    }

    /// A PUT request, which creates or replaces a resource.
    pub fn put(
        path: impl Into<String>,
        api_version: impl Into<Cow<'static, str>>,
        body: Value,
    ) -> Self {
        Self::new(Method::Put, path.into(), api_version.into(), Some(body))
    }

    /// A PATCH request.
    pub fn patch(
        path: impl Into<String>,
        api_version: impl Into<Cow<'static, str>>,
        body: Value,
    ) -> Self {
        Self::new(Method::Patch, path.into(), api_version.into(), Some(body))
    }

    /// A POST request: an action.
    pub fn post(
        path: impl Into<String>,
        api_version: impl Into<Cow<'static, str>>,
        body: Option<Value>,
    ) -> Self {
        Self::new(Method::Post, path.into(), api_version.into(), body)
    }

    /// Adds a parameter to the query.
    #[must_use]
    pub fn with_query(
        mut self,
        name: impl Into<Cow<'static, str>>,
        value: impl Into<String>,
    ) -> Self {
        self.query.push((name.into(), value.into()));
        self
    }

    /// Sets `If-Match`.
    #[must_use]
    pub fn with_if_match(self, etag: impl Into<String>) -> Self {
        Self { if_match: Some(etag.into()), ..self }
    }

    /// Sets `If-None-Match: *`: the request only creates.
    #[must_use]
    pub fn only_if_missing(self) -> Self {
        Self { if_none_match: Some("*".to_owned()), ..self }
    }

    const fn new(
        method: Method,
        path: String,
        api_version: Cow<'static, str>,
        body: Option<Value>,
    ) -> Self {
        let (if_match, if_none_match) = (None, None);
        Self { method, path, api_version, query: Vec::new(), body, if_match, if_none_match }
    }

    /// The method and the path, for messages.
    pub(crate) fn target(&self) -> String {
        format!("{} {}", self.method, self.path)
    }

    /// The URL below `endpoint`, a URL without a trailing slash; `None` if the path is not one.
    pub(crate) fn url(&self, endpoint: &str) -> Option<Url> {
        if !self.path.starts_with('/') || self.path.contains(['?', '#']) {
            return None;
        }
        let mut url: Url = format!("{endpoint}{}", self.path).parse().ok()?;
        let parameters = self.query.iter().map(|(name, value)| (&**name, value.as_str()));
        append_query(&mut url, [("api-version", &*self.api_version)].into_iter().chain(parameters));
        Some(url)
    }

    /// The conditional headers.
    pub(crate) fn headers(&self) -> Vec<(&'static str, String)> {
        let conditions = [("if-match", &self.if_match), ("if-none-match", &self.if_none_match)];
        let given = conditions.into_iter().filter_map(|(name, it)| Some((name, it.clone()?)));
        given.collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ENDPOINT: &str = "https://management.azure.com";

    #[test]
    fn url_contains_the_version_and_the_encoded_query() {
        let request = ArmRequest::get("/subscriptions/s/resources", "2021-04-01")
            .with_query("$filter", "tagName eq 'a&b'");
        assert_eq!(
            request.url(ENDPOINT).unwrap().as_str(),
            "https://management.azure.com/subscriptions/s/resources?api-version=2021-04-01&%24filter=tagName%20eq%20%27a%26b%27"
        );
        for path in ["", "subscriptions/s", "/subscriptions/s?x=1", "/subscriptions/s#x"] {
            assert_eq!(ArmRequest::get(path, "1").url(ENDPOINT), None, "{path}");
        }
    }

    #[test]
    fn conditions_become_headers() {
        let request = ArmRequest::delete("/x", "1").with_if_match("\"7\"");
        assert_eq!(request.headers(), [("if-match", "\"7\"".to_owned())]);
        let request = ArmRequest::put("/x", "1", Value::Null).only_if_missing();
        assert_eq!(request.headers(), [("if-none-match", "*".to_owned())]);
    }
}
