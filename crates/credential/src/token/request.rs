//! The parameters of a token request: scope, tenant, claims, continuous access evaluation and timeout.

use std::sync::Arc;
use std::time::Duration;

use azure_core::credentials::TokenRequestOptions;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Map, Value};

use super::error::TokenError;
use crate::identity::TenantId;

/// Additional parameters of one token request.
///
/// `azure_core::credentials::TokenRequestOptions` has no field for a tenant, for claims or for continuous
/// access evaluation (CAE). Its context can carry typed values, and this is the type of this crate.
///
/// ```
/// use azure_core::credentials::TokenRequestOptions;
/// use lanyard_credential::TokenRequestContext;
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let request = TokenRequestContext::new()
///     .for_tenant("11111111-2222-3333-4444-555555555555".parse()?)
///     .with_continuous_access_evaluation();
/// let mut options = TokenRequestOptions::default();
/// options.method_options.context.insert(request);
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TokenRequestContext {
    pub(crate) variant: TokenVariant,
    timeout: Option<Duration>,
}

impl TokenRequestContext {
    /// Creates the parameters of a request for the credential's own tenant, without claims and without CAE.
    pub fn new() -> Self {
        Self::default()
    }

    /// The parameters that the options of a request carry.
    pub(crate) fn of<'a>(options: Option<&'a TokenRequestOptions<'_>>) -> Option<&'a Self> {
        options?.method_options.context.value()
    }

    /// Requests a token of another tenant than the credential's own.
    #[must_use]
    pub fn for_tenant(mut self, tenant: TenantId) -> Self {
        self.variant.tenant = Some(tenant);
        self
    }

    /// Requests a token that satisfies `claims`, a JSON object as in the `claims` request parameter of
    /// `OpenID` Connect Core 1.0, section 5.5.
    ///
    /// # Errors
    ///
    /// Returns [`TokenError::InvalidClaims`] if `claims` is not a JSON object.
    pub fn with_claims(mut self, claims: &str) -> Result<Self, TokenError> {
        parse_claims(claims)?;
        self.variant.claims = Some(claims.into());
        Ok(self)
    }

    /// Requests a token that satisfies the `claims` of a CAE challenge, which a `WWW-Authenticate` header
    /// with `error="insufficient_claims"` carries in base64.
    ///
    /// # Errors
    ///
    /// Returns [`TokenError::InvalidClaims`] if `encoded` is not base64 of a JSON object.
    pub fn with_challenge_claims(self, encoded: &str) -> Result<Self, TokenError> {
        let decoded = STANDARD
            .decode(encoded.trim())
            .ok()
            .and_then(|bytes| String::from_utf8(bytes).ok())
            .ok_or(TokenError::InvalidClaims)?;
        self.with_claims(&decoded)
    }

    /// Declares that the caller can handle CAE challenges (client capability `CP1`). Such tokens live for
    /// about a day and are revoked by challenge, so they are cached separately.
    #[must_use]
    pub fn with_continuous_access_evaluation(mut self) -> Self {
        self.variant.continuous_access = true;
        self
    }

    /// Sets the caller's timeout. The request itself continues for other callers.
    #[must_use]
    pub fn with_timeout(mut self, time_limit: Duration) -> Self {
        self.timeout = Some(time_limit);
        self
    }

    pub(crate) fn timeout(&self) -> Option<Duration> {
        self.timeout
    }
}

/// The parameters that distinguish two tokens of one scope.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub(crate) struct TokenVariant {
    pub(crate) tenant: Option<TenantId>,
    pub(crate) claims: Option<Arc<str>>,
    pub(crate) continuous_access: bool,
}

impl TokenVariant {
    pub(crate) const PLAIN: Self = Self { tenant: None, claims: None, continuous_access: false };

    pub(crate) const fn is_plain(&self) -> bool {
        self.tenant.is_none() && self.claims.is_none() && !self.continuous_access
    }

    /// The variant without claims: a token that satisfies more claims also serves requests with fewer.
    pub(crate) fn without_claims(&self) -> Self {
        Self { claims: None, ..self.clone() }
    }

    /// The `claims` form field: the challenge's claims and the CAE capability, merged.
    pub(crate) fn claims_parameter(&self) -> Result<Option<String>, TokenError> {
        let mut claims = match &self.claims {
            Some(claims) => parse_claims(claims)?,
            None if self.continuous_access => Map::new(),
            None => return Ok(None),
        };
        if self.continuous_access {
            let access_token = claims.entry("access_token").or_insert_with(|| Map::new().into());
            let access_token = access_token.as_object_mut().ok_or(TokenError::InvalidClaims)?;
            access_token.insert("xms_cc".to_owned(), serde_json::json!({"values": ["CP1"]}));
        }
        Ok(Some(Value::Object(claims).to_string()))
    }
}

/// The key of a cached token and of a fetch in flight.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct TokenKey {
    pub(crate) scope: Arc<str>,
    pub(crate) variant: TokenVariant,
}

impl TokenKey {
    pub(crate) fn parse(scopes: &[&str], variant: TokenVariant) -> Result<Self, TokenError> {
        let scope = parse_scope(scopes)?;
        Ok(Self { scope: scope.into(), variant })
    }

    /// Creates the key of a parsed scope.
    pub(crate) fn new(scope: &str, variant: &TokenVariant) -> Self {
        Self { scope: scope.into(), variant: variant.clone() }
    }

    /// The resource of IMDS and of every v1 endpoint: the scope without `/.default`.
    pub(crate) fn resource(&self) -> &str {
        self.scope.strip_suffix("/.default").unwrap_or(&self.scope)
    }
}

/// Returns the single scope of a request. Entra issues an application token for one resource at a time, so a
/// request with two scopes is rejected.
pub(crate) fn parse_scope<'a>(scopes: &[&'a str]) -> Result<&'a str, TokenError> {
    let [scope] = scopes else {
        return Err(TokenError::NotOneScope { given: scopes.len() });
    };
    if scope.is_empty() || scope.bytes().any(|byte| byte <= b' ' || byte == 0x7f) {
        return Err(TokenError::InvalidScope { scope: scope.chars().take(128).collect() });
    }
    Ok(scope)
}

fn parse_claims(claims: &str) -> Result<Map<String, Value>, TokenError> {
    // The source error would repeat the text, so it is dropped.
    serde_json::from_str(claims).or(Err(TokenError::InvalidClaims))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exactly_one_scope_of_one_resource_is_accepted() {
        assert_eq!(parse_scope(&["https://vault.azure.net/.default"]).unwrap().len(), 32);
        for (case, scopes) in [
            ("none", &[][..]),
            ("two", &["a/.default", "b/.default"][..]),
            ("two in one string", &["a/.default b/.default"][..]),
            ("empty", &[""][..]),
            ("a line break", &["a/.default\n"][..]),
        ] {
            assert!(parse_scope(scopes).is_err(), "{case}");
        }
    }

    #[test]
    fn the_resource_keeps_the_slash_that_belongs_to_the_audience() {
        for (scope, resource) in [
            ("https://vault.azure.net/.default", "https://vault.azure.net"),
            (
                "https://management.core.windows.net//.default",
                "https://management.core.windows.net/",
            ),
            ("https://management.azure.com/", "https://management.azure.com/"),
            ("api://lanyard/.default", "api://lanyard"),
        ] {
            let key = TokenKey::parse(&[scope], TokenVariant::PLAIN).unwrap();
            assert_eq!(key.resource(), resource);
        }
    }

    #[test]
    fn capability_and_challenge_claims_are_merged() {
        let challenge = r#"{"access_token":{"nbf":{"essential":true,"value":"1604106651"}}}"#;
        let request = TokenRequestContext::new()
            .with_challenge_claims(&STANDARD.encode(challenge))
            .unwrap()
            .with_continuous_access_evaluation();
        let claims: Value =
            serde_json::from_str(&request.variant.claims_parameter().unwrap().unwrap()).unwrap();
        assert_eq!(claims["access_token"]["nbf"]["value"], "1604106651");
        assert_eq!(claims["access_token"]["xms_cc"]["values"][0], "CP1");
    }

    #[test]
    fn no_claims_are_sent_unless_asked_for() {
        assert_eq!(TokenVariant::PLAIN.claims_parameter().unwrap(), None);
    }

    #[test]
    fn claims_that_are_not_an_object_are_refused() {
        for claims in ["", "[]", "\"text\"", "{", r#"{"a":1} trailing"#] {
            let refused = TokenRequestContext::new().with_claims(claims);
            assert!(matches!(refused, Err(TokenError::InvalidClaims)), "{claims:?}");
        }
        assert!(TokenRequestContext::new().with_challenge_claims("%%%").is_err());
    }
}
