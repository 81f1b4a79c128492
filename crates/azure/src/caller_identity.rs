//! The identity of a token's caller.

use azure_core::base64;
use lanyard_vocabulary::EntraTenantId;
use serde::Deserialize;
use uuid::Uuid;

use crate::authorization::AssignedPrincipalType;

/// The principal that a token for Azure Resource Manager or Microsoft Graph was issued to.
///
/// Azure documents access tokens as opaque to clients; those for Azure Resource Manager contain these claims in
/// every version, and the Azure CLI reads them as well.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CallerIdentity {
    /// The object id of the user or service principal (`oid`).
    pub object_id: Uuid,
    /// The tenant (`tid`).
    pub tenant: EntraTenantId,
    /// Whether the caller is a user or an application (`idtyp`).
    pub principal_type: AssignedPrincipalType,
    /// The permissions of an application for the token's resource (`roles`), or those that a user delegated to
    /// the client (`scp`).
    pub permissions: Vec<String>,
    /// The names under which Azure Resource Manager may record the caller as the creator of a resource: the object
    /// id, and the client id of an application (`appid`) or the name of a user (`upn`, `unique_name`).
    pub creator_names: Vec<String>,
}

#[derive(Deserialize)]
struct CallerClaims {
    oid: Uuid,
    tid: EntraTenantId,
    idtyp: Option<String>,
    /// Only tokens of users have scopes.
    scp: Option<String>,
    #[serde(default)]
    roles: Vec<String>,
    appid: Option<String>,
    upn: Option<String>,
    unique_name: Option<String>,
}

impl CallerIdentity {
    /// Reads the claims of a token without a check of its signature; `None` if they are not readable.
    pub fn of_token(token: &str) -> Option<Self> {
        let payload = token.split('.').nth(1)?;
        let payload = base64::decode_url_safe(payload).ok()?;
        let claims: CallerClaims = serde_json::from_slice(&payload).ok()?;
        let is_user = match claims.idtyp.as_deref() {
            Some(kind) => kind.eq_ignore_ascii_case("user"),
            None => claims.scp.is_some(),
        };
        let principal_type = if is_user {
            AssignedPrincipalType::User
        } else {
            AssignedPrincipalType::ServicePrincipal
        };
        let delegated = claims.scp.as_deref().unwrap_or_default();
        let permissions =
            claims.roles.into_iter().chain(delegated.split_whitespace().map(str::to_owned));
        // The client id in a token of a user is that of the program, such as the Azure CLI.
        let names = if is_user { [claims.upn, claims.unique_name] } else { [claims.appid, None] };
        let object_id = Some(claims.oid.to_string());
        Some(Self {
            creator_names: [object_id].into_iter().chain(names).flatten().collect(),
            object_id: claims.oid,
            tenant: claims.tid,
            principal_type,
            permissions: permissions.collect(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn token(claims: &str) -> String {
        format!("e30.{}.x", base64::encode_url_safe(claims))
    }

    #[test]
    fn claims_name_the_caller_and_its_type() {
        let id = "00000000-0000-0000-0000-000000000001";
        for (extra, expected) in [
            (r#""idtyp": "app""#, AssignedPrincipalType::ServicePrincipal),
            (r#""idtyp": "user""#, AssignedPrincipalType::User),
            (r#""scp": "user_impersonation""#, AssignedPrincipalType::User),
            (r#""x": 1"#, AssignedPrincipalType::ServicePrincipal),
        ] {
            let token = token(&format!(r#"{{"oid": "{id}", "tid": "{id}", {extra}}}"#));
            let caller = CallerIdentity::of_token(&token).unwrap();
            assert_eq!(
                (caller.object_id.to_string().as_str(), caller.principal_type),
                (id, expected)
            );
        }
        let names = |kind: &str| {
            let claims = format!(
                r#"{{"oid": "{id}", "tid": "{id}", "idtyp": "{kind}", "appid": "a", "upn": "u@example.com"}}"#
            );
            CallerIdentity::of_token(&token(&claims)).unwrap().creator_names
        };
        assert_eq!(names("app"), [id, "a"]);
        assert_eq!(names("user"), [id, "u@example.com"]);
        assert_eq!(CallerIdentity::of_token("opaque"), None);
        assert_eq!(CallerIdentity::of_token(&token("{}")), None);
    }
}
