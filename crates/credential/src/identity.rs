//! Tenant, client id and authority of token requests.
//!
//! The validation follows the Go SDK (azidentity 1.14), where it has any.

use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;

use lanyard_clock::ErrorHint;
use serde::{Serialize, Serializer};
use url::Url;

/// A tenant: a GUID or a domain name. Letters, digits, `.` and `-` only, as in the Azure SDKs.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TenantId(Box<str>);

/// The application (client) id of an identity: a GUID, or a URI such as `api://name`.
///
/// Long or other text is rejected: a secret that was pasted into the wrong field would otherwise be displayed
/// as an id.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ClientId(Box<str>);

/// Errors of parsing a tenant or client id. Never contains the text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ParseIdError {
    /// The text is empty.
    #[error("the id is empty")]
    Empty,
    /// The text is longer than any id.
    #[error("the id is longer than {limit} characters")]
    TooLong {
        /// The maximum length.
        limit: usize,
    },
    /// A character is not allowed in an id.
    #[error("character {position} of the id is not allowed")]
    Character {
        /// The position of the character, counted from 1.
        position: usize,
    },
}

impl ErrorHint for ParseIdError {
    fn hint(&self) -> Option<Cow<'static, str>> {
        Some(Cow::Borrowed(match self {
            Self::Empty => "write the id of the identity, as Azure shows it",
            Self::TooLong { .. } | Self::Character { .. } => {
                "a tenant is a GUID or a domain name, a client id is a GUID: look for quotes, spaces or line breaks around it"
            }
        }))
    }
}

impl TenantId {
    /// The text, as in a token endpoint URL.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl ClientId {
    /// The text, as in a token request.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl From<uuid::Uuid> for ClientId {
    /// Uses the hyphenated form.
    fn from(id: uuid::Uuid) -> Self {
        Self(id.hyphenated().to_string().into())
    }
}

impl FromStr for TenantId {
    type Err = ParseIdError;

    fn from_str(text: &str) -> Result<Self, ParseIdError> {
        parse_id(text, |c| c.is_ascii_alphanumeric() || matches!(c, '.' | '-')).map(Self)
    }
}

impl FromStr for ClientId {
    type Err = ParseIdError;

    fn from_str(text: &str) -> Result<Self, ParseIdError> {
        let allowed =
            |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_' | ':' | '/');
        parse_id(text, allowed).map(Self)
    }
}

impl fmt::Display for TenantId {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

impl fmt::Display for ClientId {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

impl Serialize for TenantId {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.0)
    }
}

impl Serialize for ClientId {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.0)
    }
}

fn parse_id(text: &str, allowed: impl Fn(char) -> bool) -> Result<Box<str>, ParseIdError> {
    if text.is_empty() {
        return Err(ParseIdError::Empty);
    }
    if let Some(position) = text.chars().position(|c| !allowed(c)) {
        return Err(ParseIdError::Character { position: position + 1 });
    }
    if text.len() > ID_LIMIT {
        return Err(ParseIdError::TooLong { limit: ID_LIMIT });
    }
    Ok(text.into())
}

/// GUIDs have 36 characters; domain names and application URIs are rarely longer than 128.
const ID_LIMIT: usize = 128;

/// The base URL of an Entra token service: `https`, a host, no query and no user info.
///
/// A path is kept, because regional authorities may have one.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Authority(Url);

/// Errors of parsing an authority.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ParseAuthorityError {
    /// The text is empty. Go falls back to the public cloud here, and signs in to the wrong cloud.
    #[error("the authority is empty")]
    Empty,
    /// The text is not a URL.
    #[error("the authority is not a url")]
    NotAUrl(#[source] url::ParseError),
    /// The URL is not `https`.
    #[error("the authority does not use https")]
    NotHttps,
    /// The URL has no host.
    #[error("the authority has no host")]
    NoHost,
    /// The URL has a user name, a password, a query or a fragment.
    #[error("the authority holds more than scheme, host, port and path")]
    TooMuch,
    /// The path of the URL contains a tenant or a token endpoint. Lanyard appends both, so every token request would
    /// fail.
    #[error("the authority contains a tenant or a token endpoint; write {expected}")]
    TenantInPath {
        /// The URL without it.
        expected: String,
    },
}

impl ErrorHint for ParseAuthorityError {
    fn hint(&self) -> Option<Cow<'static, str>> {
        Some(Cow::Borrowed(match self {
            Self::TooMuch => "leave out user name, query and fragment",
            Self::TenantInPath { .. } => "leave out the tenant and everything behind it",
            _ => {
                "write the base url of the cloud's token service, such as https://login.microsoftonline.com/"
            }
        }))
    }
}

impl Authority {
    /// The URL.
    pub fn as_url(&self) -> &Url {
        &self.0
    }

    /// Fails if the path contains this tenant.
    pub(crate) fn check_tenant(&self, tenant: &TenantId) -> Result<(), ParseAuthorityError> {
        self.check_path(|segment| segment.eq_ignore_ascii_case(tenant.as_str()))
    }

    fn check_path(&self, is_tenant: impl Fn(&str) -> bool) -> Result<(), ParseAuthorityError> {
        let segments: Vec<_> = self.0.path_segments().into_iter().flatten().collect();
        // A domain, or the pseudo tenant of AD FS, is a tenant if the path of its token endpoint follows.
        let is_endpoint = |next: &&str| next.eq_ignore_ascii_case(ENDPOINT_PATH);
        let ends_at = |(position, segment): (usize, &&str)| {
            let is_name = segment.contains('.') || segment.eq_ignore_ascii_case(FEDERATION_SERVICE);
            is_tenant(segment) || is_name && segments.get(position + 1).is_some_and(is_endpoint)
        };
        let Some(position) = segments.iter().enumerate().position(ends_at) else { return Ok(()) };
        let mut expected = self.0.clone();
        expected.set_path(&segments[..position].join("/"));
        Err(ParseAuthorityError::TenantInPath { expected: expected.to_string() })
    }

    /// The token endpoint of a tenant, built without discovery: `{authority}/{tenant}/oauth2/v2.0/token`, and
    /// `{authority}/adfs/oauth2/token` for the tenant `adfs`, which denotes the federation service of Azure
    /// Stack and has no v2 endpoint.
    pub fn token_endpoint(&self, tenant: &TenantId) -> Url {
        let mut endpoint = self.0.clone();
        let rest: &[&str] = if tenant.as_str().eq_ignore_ascii_case(FEDERATION_SERVICE) {
            &[FEDERATION_SERVICE, ENDPOINT_PATH, "token"]
        } else {
            &[tenant.as_str(), ENDPOINT_PATH, "v2.0", "token"]
        };
        // An `https` URL always has path segments; without them the URL would stay unchanged.
        if let Ok(mut segments) = endpoint.path_segments_mut() {
            segments.pop_if_empty().extend(rest);
        }
        endpoint
    }
}

impl FromStr for Authority {
    type Err = ParseAuthorityError;

    fn from_str(text: &str) -> Result<Self, ParseAuthorityError> {
        if text.trim().is_empty() {
            return Err(ParseAuthorityError::Empty);
        }
        let url = Url::parse(text).map_err(ParseAuthorityError::NotAUrl)?;
        if url.scheme() != "https" {
            return Err(ParseAuthorityError::NotHttps);
        }
        if url.host_str().is_none_or(str::is_empty) {
            return Err(ParseAuthorityError::NoHost);
        }
        let plain = url.username().is_empty()
            && url.password().is_none()
            && url.query().is_none()
            && url.fragment().is_none();
        if !plain {
            return Err(ParseAuthorityError::TooMuch);
        }
        let is_tenant = |segment: &str| {
            let is_name = |name: &&str| name.eq_ignore_ascii_case(segment);
            uuid::Uuid::try_parse(segment).is_ok() || TENANT_NAMES.iter().any(is_name)
        };
        let authority = Self(url);
        authority.check_path(is_tenant)?;
        Ok(authority)
    }
}

/// Segments of token endpoints that are no part of an authority: names of all tenants, and what follows a tenant.
const TENANT_NAMES: [&str; 4] = ["common", "organizations", "consumers", ENDPOINT_PATH];
/// The segment behind the tenant in the URL of a token endpoint.
const ENDPOINT_PATH: &str = "oauth2";

impl fmt::Display for Authority {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, formatter)
    }
}

impl Serialize for Authority {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.0.as_str())
    }
}

/// The pseudo tenant of AD FS.
const FEDERATION_SERVICE: &str = "adfs";

/// An application of a tenant, with the token service of its cloud.
#[derive(Debug, Clone)]
pub(crate) struct EntraApplication {
    pub(crate) tenant: TenantId,
    pub(crate) client: ClientId,
    pub(crate) authority: Authority,
    /// The token endpoint of `tenant`.
    pub(crate) token_endpoint: Url,
}

impl EntraApplication {
    pub(crate) fn new(tenant: TenantId, client: ClientId, authority: Authority) -> Self {
        Self { token_endpoint: authority.token_endpoint(&tenant), tenant, client, authority }
    }

    /// The token endpoint of another tenant, or of its own without one.
    pub(crate) fn token_endpoint_for(&self, other: Option<&TenantId>) -> Cow<'_, Url> {
        other.map_or(Cow::Borrowed(&self.token_endpoint), |tenant| {
            Cow::Owned(self.authority.token_endpoint(tenant))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tenant_in_the_path_of_an_authority_is_an_error_with_the_right_value() {
        const HOST: &str = "https://login.microsoftonline.com";
        for (path, expected) in [
            ("/72f988bf-86f1-41af-91ab-2d7cd011db47", "/"),
            ("/72F988BF86F141AF91AB2D7CD011DB47/", "/"),
            ("/Common/oauth2/v2.0/token", "/"),
            ("/westus2/72f988bf-86f1-41af-91ab-2d7cd011db47/oauth2", "/westus2"),
            ("/contoso.onmicrosoft.com/oauth2/v2.0/token", "/"),
            ("/oauth2/token", "/"),
            ("/adfs/oauth2/token", "/"),
            ("/entra/oauth2/v2.0/token", "/entra"),
        ] {
            let error = format!("{HOST}{path}").parse::<Authority>().unwrap_err();
            let expected = format!("{HOST}{expected}");
            assert_eq!(error, ParseAuthorityError::TenantInPath { expected }, "{path}");
        }
        let authority: Authority = format!("{HOST}/contoso.onmicrosoft.com").parse().unwrap();
        assert!(authority.check_tenant(&"Contoso.onmicrosoft.com".parse().unwrap()).is_err());
        assert!(authority.check_tenant(&"example.com".parse().unwrap()).is_ok());
    }

    #[test]
    fn the_federation_service_of_an_azure_stack_has_an_endpoint_of_its_own() {
        let authority: Authority = "https://adfs.local.azurestack.external/".parse().unwrap();
        let expected = "https://adfs.local.azurestack.external/adfs/oauth2/token";
        for tenant in ["adfs", "ADFS"] {
            assert_eq!(authority.token_endpoint(&tenant.parse().unwrap()).as_str(), expected);
        }
    }

    #[test]
    fn a_tenant_holds_letters_digits_dots_and_dashes_only() {
        for good in ["72f988bf-86f1-41af-91ab-2d7cd011db47", "contoso.onmicrosoft.com", "common"] {
            assert_eq!(good.parse::<TenantId>().unwrap().as_str(), good);
        }
        let cases = [
            ("", ParseIdError::Empty),
            (" a", ParseIdError::Character { position: 1 }),
            ("a/b", ParseIdError::Character { position: 2 }),
            ("täna", ParseIdError::Character { position: 2 }),
            ("ab\n", ParseIdError::Character { position: 3 }),
        ];
        for (bad, error) in cases {
            assert_eq!(bad.parse::<TenantId>(), Err(error), "{bad:?}");
        }
        let long = "a".repeat(129);
        assert_eq!(long.parse::<TenantId>(), Err(ParseIdError::TooLong { limit: 128 }));
    }

    #[test]
    fn a_client_id_is_a_guid_or_a_uri_and_never_base64() {
        for good in ["72f988bf-86f1-41af-91ab-2d7cd011db47", "api://my_app", "http://a.example/b"] {
            assert_eq!(good.parse::<ClientId>().unwrap().as_str(), good);
        }
        let padded = "c2VjcmV0IQ==".parse::<ClientId>();
        assert_eq!(padded, Err(ParseIdError::Character { position: 11 }));
        let long = "c2Vj".repeat(33).parse::<ClientId>();
        assert_eq!(long, Err(ParseIdError::TooLong { limit: 128 }));
    }

    #[test]
    fn the_token_endpoint_follows_from_authority_and_tenant() {
        let tenant: TenantId = "t-1".parse().unwrap();
        let cases = [
            ("https://login.microsoftonline.com", "https://login.microsoftonline.com/"),
            ("https://login.microsoftonline.com/", "https://login.microsoftonline.com/"),
            (
                "https://westus2.r.login.microsoft.com:8443/",
                "https://westus2.r.login.microsoft.com:8443/",
            ),
            ("https://localhost/base/", "https://localhost/base/"),
            ("https://localhost/base", "https://localhost/base/"),
        ];
        for (text, base) in cases {
            let authority: Authority = text.parse().unwrap();
            let expected = format!("{base}t-1/oauth2/v2.0/token");
            assert_eq!(authority.token_endpoint(&tenant).as_str(), expected);
        }
    }

    #[test]
    fn an_authority_is_https_and_nothing_more_than_a_base() {
        let parse = |text: &str| text.parse::<Authority>().unwrap_err();
        assert_eq!(parse(""), ParseAuthorityError::Empty);
        assert_eq!(parse("  "), ParseAuthorityError::Empty);
        assert_eq!(parse("http://login.microsoftonline.com/"), ParseAuthorityError::NotHttps);
        assert_eq!(parse("https://u:p@login.microsoftonline.com/"), ParseAuthorityError::TooMuch);
        assert_eq!(parse("https://login.microsoftonline.com/?a=b"), ParseAuthorityError::TooMuch);
        assert!(matches!(parse("login.microsoftonline.com"), ParseAuthorityError::NotAUrl(_)));
        assert!(matches!(parse("https://"), ParseAuthorityError::NotAUrl(_)));
    }
}
