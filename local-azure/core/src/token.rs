//! Access tokens: issued by the emulated Entra, verified by the other services.

mod verification;

use aws_lc_rs::digest::{Context, SHA256};
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use jiff::Timestamp;
use lanyard_emulator_state::azure_clouds::EmulatedCloud;
use lanyard_emulator_state::directory::{ServicePrincipal, Tenant, User};
use lanyard_emulator_state::id_generator::IdGenerator;
use lanyard_emulator_state::jose;
use lanyard_emulator_state::keys::{RedactedText, RsaKeyError};
use lanyard_emulator_state::token_policy::TokenPolicy;
use lanyard_vocabulary::{EntraClientId, EntraTenantId};
use serde_json::{Map, Value, json};
use uuid::Uuid;

pub use self::verification::{
    AuthenticatedCaller, BearerTokenError, VerifiedTokenCache, verify_bearer,
};

/// Tokens with a longer lifetime have a `refresh_in` of half their lifetime.
const LONG_LIFE_SECONDS: u32 = 7_200;

/// The authentication method of a client: `appidacr` of its token.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ClientAuthMethod {
    /// None: a public client, in which a user signs in.
    Public,
    /// A client secret.
    Secret,
    /// A certificate, a federated token, or the managed identity of a virtual machine.
    KeyOrToken,
}

impl ClientAuthMethod {
    /// The value of `appidacr`.
    const fn claim(self) -> &'static str {
        match self {
            Self::Public => "0",
            Self::Secret => "1",
            Self::KeyOrToken => "2",
        }
    }
}

/// The subject of an access token.
#[derive(Debug, Clone, Copy)]
pub enum TokenSubject<'a> {
    /// An application or managed identity that acts as itself.
    ServicePrincipal(&'a ServicePrincipal),
    /// A user who signed in with a client application.
    User {
        user: &'a User,
        client: EntraClientId,
        /// The delegated permissions, separated by spaces: `scp`.
        scopes: &'a str,
    },
}

/// The format of an access token, which the resource determines.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum AccessTokenVersion {
    /// Version 1.0, for the services of Azure and for applications by default.
    #[default]
    V1,
    /// Version 2.0, for applications with `requestedAccessTokenVersion` 2.
    V2,
}

/// Claims that depend on the configuration of the resource or on the request.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct OptionalClaims {
    /// The object ids of the user's groups: `groups`.
    pub groups: Option<Vec<Uuid>>,
    /// The application roles of the subject: `roles`.
    pub roles: Vec<String>,
    /// The capabilities of the client, such as `CP1`: `xms_cc`.
    pub client_capabilities: Vec<String>,
}

#[derive(Debug, Clone)]
pub struct TokenGrant<'a> {
    pub subject: TokenSubject<'a>,
    /// The `aud`: for services of Azure, the resource exactly as requested, including slashes.
    pub audience: &'a str,
    pub version: AccessTokenVersion,
    /// How the client authenticated.
    pub auth_method: ClientAuthMethod,
    /// The cloud of the token service.
    pub cloud: &'a EmulatedCloud,
    pub optional: OptionalClaims,
}

#[derive(Debug)]
pub struct IssuedAccessToken {
    pub token: RedactedText,
    /// The start of the validity, in seconds of Unix time.
    pub not_before: i64,
    /// The lifetime, in seconds.
    pub expires_in: u32,
    /// When to refresh the token, in seconds, for tokens with a long lifetime.
    pub refresh_in: Option<u32>,
}

impl IssuedAccessToken {
    /// The expiry, in seconds of Unix time.
    pub fn expires_on(&self) -> i64 {
        self.not_before + i64::from(self.expires_in)
    }
}

/// The `sub` of a user: an id that differs between the audiences of tokens.
pub fn pairwise_subject(user: Uuid, audience: &str) -> String {
    let mut context = Context::new(&SHA256);
    context.update(user.as_bytes());
    context.update(audience.as_bytes());
    URL_SAFE_NO_PAD.encode(context.finish())
}

/// A unique id of a token: `uti`.
pub fn unique_token_id(ids: &mut IdGenerator) -> String {
    URL_SAFE_NO_PAD.encode(ids.next_uuid().as_bytes())
}

/// Issues an access token.
pub fn issue_access_token(
    policy: TokenPolicy,
    tenant: &Tenant,
    grant: TokenGrant<'_>,
    now: Timestamp,
    ids: &mut IdGenerator,
) -> Result<IssuedAccessToken, RsaKeyError> {
    let managed_identity = match grant.subject {
        TokenSubject::ServicePrincipal(principal) => principal.resource_id(),
        TokenSubject::User { .. } => None,
    };
    let expires_in = if managed_identity.is_some() {
        policy.managed_identity_seconds
    } else {
        policy.application_seconds
    };
    let not_before = now.as_second();
    let mut claims = Map::new();
    let mut claim = |name: &str, value: Value| {
        claims.insert(name.to_owned(), value);
    };
    claim("aud", json!(grant.audience));
    for name in ["iat", "nbf"] {
        claim(name, json!(not_before));
    }
    claim("exp", json!(not_before + i64::from(expires_in)));
    claim("tid", json!(tenant.id));
    add_version_claims(&mut claim, &grant, &tenant.id);
    add_subject_claims(&mut claim, &grant);
    add_optional_claims(&mut claim, &grant.optional);
    claim("uti", json!(unique_token_id(ids)));
    if let Some(resource) = managed_identity {
        claim("xms_mirid", json!(resource));
    }
    Ok(IssuedAccessToken {
        token: sign_token(tenant, &claims)?,
        not_before,
        expires_in,
        refresh_in: (expires_in > LONG_LIFE_SECONDS).then_some(expires_in / 2),
    })
}

/// Signs claims with the current key of a tenant, and marks the token as emulated.
pub fn sign_token(
    tenant: &Tenant,
    claims: &Map<String, Value>,
) -> Result<RedactedText, RsaKeyError> {
    let mut claims = claims.clone();
    claims.insert("xms_emu".to_owned(), json!("lanyard"));
    let signing = tenant.signing_keys.current();
    let header =
        json!({ "typ": "JWT", "alg": "RS256", "x5t": signing.key_id, "kid": signing.key_id });
    jose::sign_rs256_token(&header, &claims, &signing.key).map(RedactedText::new)
}

/// Issuer, client and version: the claims that differ between the versions.
fn add_version_claims(
    claim: &mut impl FnMut(&str, Value),
    grant: &TokenGrant<'_>,
    tenant: &EntraTenantId,
) {
    let client = match grant.subject {
        TokenSubject::ServicePrincipal(principal) => principal.client_id,
        TokenSubject::User { client, .. } => client,
    };
    let method = json!(grant.auth_method.claim());
    match grant.version {
        AccessTokenVersion::V1 => {
            let issuer = grant.cloud.v1_issuer(tenant);
            claim("iss", json!(issuer));
            claim("idp", json!(issuer));
            claim("appid", json!(client));
            claim("appidacr", method);
            claim("ver", json!("1.0"));
        }
        AccessTokenVersion::V2 => {
            claim("iss", json!(grant.cloud.v2_issuer(tenant)));
            claim("azp", json!(client));
            claim("azpacr", method);
            claim("ver", json!("2.0"));
        }
    }
}

fn add_subject_claims(claim: &mut impl FnMut(&str, Value), grant: &TokenGrant<'_>) {
    match grant.subject {
        TokenSubject::ServicePrincipal(principal) => {
            for name in ["oid", "sub"] {
                claim(name, json!(principal.object_id));
            }
            claim("idtyp", json!("app"));
        }
        TokenSubject::User { user, scopes, .. } => {
            claim("oid", json!(user.object_id));
            claim("sub", json!(pairwise_subject(user.object_id, grant.audience)));
            let names: &[&str] = match grant.version {
                AccessTokenVersion::V1 => &["upn", "unique_name"],
                AccessTokenVersion::V2 => &["preferred_username"],
            };
            for name in names {
                claim(name, json!(user.principal_name));
            }
            claim("name", json!(user.display_name));
            claim("acr", json!("1"));
            claim("amr", json!(["pwd"]));
            claim("idtyp", json!("user"));
            claim("scp", json!(scopes));
        }
    }
}

fn add_optional_claims(claim: &mut impl FnMut(&str, Value), optional: &OptionalClaims) {
    if let Some(groups) = &optional.groups {
        claim("groups", json!(groups));
    }
    if !optional.roles.is_empty() {
        claim("roles", json!(optional.roles));
    }
    if !optional.client_capabilities.is_empty() {
        claim("xms_cc", json!(optional.client_capabilities));
    }
}

#[cfg(test)]
mod tests;
