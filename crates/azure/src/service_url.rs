//! URLs of a service: query parameters, and URLs in its replies.

use azure_core::http::Url;

/// Adds parameters to the query. Spaces become `%20`: not every service decodes `+`.
pub(crate) fn append_query<'a>(
    url: &mut Url,
    parameters: impl IntoIterator<Item = (&'a str, &'a str)>,
) {
    url.query_pairs_mut().extend_pairs(parameters);
    let query = url.query().map(|query| query.replace('+', "%20"));
    url.set_query(query.as_deref().filter(|query| !query.is_empty()));
}

/// Parses a URL with the scheme, host and port of `endpoint`; otherwise returns its scheme and host.
pub(crate) fn own_url(endpoint: &str, text: &str) -> Result<Url, String> {
    let Ok(url) = text.parse::<Url>() else { return Err("no URL".to_owned()) };
    let is_own = endpoint.parse::<Url>().is_ok_and(|own| own.origin() == url.origin());
    if is_own && url.username().is_empty() && url.password().is_none() {
        return Ok(url);
    }
    Err(format!("{}://{}", url.scheme(), url.host_str().unwrap_or_default()))
}

/// An `OData` string literal: in single quotes, with quotes doubled.
pub(crate) fn odata_literal(text: &str) -> String {
    format!("'{}'", text.replace('\'', "''"))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn query_and_literals_keep_any_text(text in any::<String>()) {
            let mut url: Url = "https://graph.microsoft.com/v1.0/applications".parse().unwrap();
            append_query(&mut url, [("a", "b+c"), ("$filter", &text)]);
            let pairs: Vec<_> = url.query_pairs().map(|(_, value)| value.into_owned()).collect();
            prop_assert_eq!(pairs, ["b+c".to_owned(), text.clone()]);
            let literal = odata_literal(&text);
            let inner = literal.strip_prefix('\'').unwrap().strip_suffix('\'').unwrap();
            prop_assert_eq!(inner.replace("''", "'"), text);
        }
    }
}
