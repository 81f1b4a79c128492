//! Verifies the bearer tokens of requests.

use std::collections::HashMap;
use std::sync::Arc;

use aws_lc_rs::digest::{SHA256, digest};
use jiff::Timestamp;
use lanyard_emulator_state::azure_state::AzureState;
use lanyard_emulator_state::directory::{Tenant, TenantSigningKey};
use lanyard_emulator_state::jose::{AssertionAlgorithm, SKEW_SECONDS, UnverifiedToken};
use lanyard_vocabulary::{ArmResourceId, EntraClientId, EntraTenantId};
use serde_json::Value;
use uuid::Uuid;

/// The caller of a request, from a verified token.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AuthenticatedCaller {
    /// The object id of the principal, which role assignments refer to.
    pub object_id: Uuid,
    /// The application id.
    pub app_id: EntraClientId,
    /// The tenant that issued the token.
    pub tenant: EntraTenantId,
    /// The Azure resource of a managed identity.
    pub resource_id: Option<ArmResourceId>,
    /// The principal name of the user who signed in; `None` for a token of an application itself.
    pub user: Option<String>,
    /// The audience of the token.
    pub audience: String,
    /// The permissions in the token: the app roles of an application, the delegated permissions of a user.
    pub permissions: Vec<String>,
}

/// A request has no bearer token, or one that the service does not accept. Each service has its own message for
/// it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BearerTokenError {
    /// The request has no token.
    #[error("no bearer token was sent")]
    Missing,
    /// The token is not a JSON Web Token.
    #[error("the bearer token is not a JSON Web Token")]
    Malformed,
    /// The token was not signed by an emulated tenant.
    #[error("the bearer token was not issued by a tenant of this emulator")]
    NotIssuedHere,
    /// The token is for another resource.
    #[error("the audience of the token is `{found}`")]
    Audience {
        /// The audience of the token.
        found: String,
    },
    /// The token has expired, or is not valid yet.
    #[error("the token is outside its lifetime")]
    Lifetime,
}

/// A token with a verified signature.
#[derive(Debug, Clone)]
struct VerifiedToken {
    /// The key that signed it.
    key_id: String,
    /// The start and the end of its validity, in seconds of Unix time.
    validity: (i64, i64),
    caller: Arc<AuthenticatedCaller>,
}

/// Tokens whose signatures were verified, because clients send the same token with many requests. Audience,
/// lifetime and the publication of the signing key are checked for every request.
///
/// The cache has two generations: when the recent one is full, it replaces the older one.
#[derive(Debug, Default)]
pub struct VerifiedTokenCache {
    recent: HashMap<TokenDigest, VerifiedToken>,
    older: HashMap<TokenDigest, VerifiedToken>,
}

/// The SHA-256 digest of a token's text.
type TokenDigest = [u8; 32];

/// The maximum number of tokens in each of the two generations.
const TOKENS_PER_GENERATION: usize = 2_048;

impl VerifiedTokenCache {
    fn get(&mut self, digest: &TokenDigest) -> Option<&VerifiedToken> {
        if let Some(token) = self.older.remove(digest) {
            self.insert(*digest, token);
        }
        self.recent.get(digest)
    }

    fn insert(&mut self, digest: TokenDigest, token: VerifiedToken) {
        if self.recent.len() >= TOKENS_PER_GENERATION {
            self.older = std::mem::take(&mut self.recent);
        }
        self.recent.insert(digest, token);
    }

    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.recent.len() + self.older.len()
    }
}

/// Verifies the token of an `Authorization` header for one of `audiences`, compared exactly.
pub fn verify_bearer(
    azure: &AzureState,
    cache: &mut VerifiedTokenCache,
    authorization: Option<&str>,
    audiences: &[impl AsRef<str>],
    now: Timestamp,
) -> Result<Arc<AuthenticatedCaller>, BearerTokenError> {
    let (scheme, text) =
        authorization.and_then(|header| header.split_once(' ')).ok_or(BearerTokenError::Missing)?;
    if !scheme.eq_ignore_ascii_case("bearer") {
        return Err(BearerTokenError::Missing);
    }
    let text = text.trim();
    let digest = token_digest(text);
    if let Some(token) = cache.get(&digest) {
        let tenant = azure.directory.tenant(token.caller.tenant.as_str());
        if tenant.is_none_or(|tenant| tenant.signing_keys.find(&token.key_id).is_none()) {
            return Err(BearerTokenError::NotIssuedHere);
        }
        return token.caller_for(audiences, now);
    }
    let verified = verify_signature(azure, text)?;
    let caller = verified.caller_for(audiences, now)?;
    cache.insert(digest, verified);
    Ok(caller)
}

fn token_digest(text: &str) -> TokenDigest {
    let mut bytes = TokenDigest::default();
    // Both have 32 bytes.
    bytes.copy_from_slice(digest(&SHA256, text.as_bytes()).as_ref());
    bytes
}

/// Parses a token and verifies its signature with the published key that it names.
fn verify_signature(azure: &AzureState, text: &str) -> Result<VerifiedToken, BearerTokenError> {
    let token = UnverifiedToken::parse(text).ok_or(BearerTokenError::Malformed)?;
    let key_id = token.header.kid.as_deref().unwrap_or_default();
    let (tenant, signing) = find_signing_key(azure, key_id)?;
    let public = signing.key.public_der().map_err(|_unreadable| BearerTokenError::NotIssuedHere)?;
    // The issuer determines the algorithm, never the token.
    if token.header.alg != "RS256" || !token.is_signed_by(AssertionAlgorithm::Rs256, &public) {
        return Err(BearerTokenError::NotIssuedHere);
    }
    VerifiedToken::from_claims(&token, tenant).ok_or(BearerTokenError::Malformed)
}

fn find_signing_key<'a>(
    azure: &'a AzureState,
    key_id: &str,
) -> Result<(&'a Tenant, &'a TenantSigningKey), BearerTokenError> {
    let mut tenants = azure.directory.tenants.iter();
    tenants
        .find_map(|tenant| tenant.signing_keys.find(key_id).map(|key| (tenant, key)))
        .ok_or(BearerTokenError::NotIssuedHere)
}

impl VerifiedToken {
    fn from_claims(token: &UnverifiedToken, tenant: &Tenant) -> Option<Self> {
        let whole = |claim| token.claims.get(claim).and_then(Value::as_i64);
        let client = token.text_claim("appid").or_else(|| token.text_claim("azp"))?;
        let user = token.text_claim("upn").or_else(|| token.text_claim("preferred_username"));
        let roles = token.claims.get("roles").and_then(Value::as_array).into_iter().flatten();
        let permissions: Vec<_> = match user {
            Some(_) => token.text_claim("scp").unwrap_or_default().split_whitespace().collect(),
            None => roles.filter_map(Value::as_str).collect(),
        };
        Some(Self {
            key_id: token.header.kid.clone()?,
            validity: (whole("nbf")?, whole("exp")?),
            caller: Arc::new(AuthenticatedCaller {
                object_id: token.text_claim("oid")?.parse().ok()?,
                app_id: client.parse().ok()?,
                tenant: tenant.id.clone(),
                resource_id: token.text_claim("xms_mirid").and_then(|text| text.parse().ok()),
                user: user.map(ToOwned::to_owned),
                audience: token.text_claim("aud")?.to_owned(),
                permissions: permissions.into_iter().map(str::to_owned).collect(),
            }),
        })
    }

    /// The caller, if the token is valid now and for one of `audiences`.
    fn caller_for(
        &self,
        audiences: &[impl AsRef<str>],
        now: Timestamp,
    ) -> Result<Arc<AuthenticatedCaller>, BearerTokenError> {
        let (begins, ends) = self.validity;
        let second = now.as_second();
        if second >= ends || second < begins - SKEW_SECONDS {
            return Err(BearerTokenError::Lifetime);
        }
        let audience = &self.caller.audience;
        if !audiences.iter().any(|accepted| accepted.as_ref() == audience) {
            return Err(BearerTokenError::Audience { found: audience.clone() });
        }
        Ok(Arc::clone(&self.caller))
    }
}
