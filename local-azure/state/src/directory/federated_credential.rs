//! Federated credentials of applications and managed identities.

use serde::{Deserialize, Serialize};
use uuid::Uuid;

/// A federated credential: tokens of another issuer that authenticate this principal.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FederatedCredential {
    /// The name, unique within the principal.
    pub name: String,
    /// The exact `iss`.
    pub issuer: String,
    /// The exact `sub`.
    pub subject: String,
    /// The accepted `aud` values.
    pub audiences: Vec<String>,
    /// The object id in Microsoft Graph, if Microsoft Graph created the credential.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<Uuid>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
}

impl FederatedCredential {
    /// The greatest number of characters of the issuer, the subject, an audience and the description.
    pub const MAX_TEXT: usize = 600;

    /// Creates a credential with one audience and without an id of Microsoft Graph.
    pub fn new(name: &str, issuer: &str, subject: &str, audience: &str) -> Self {
        Self {
            name: name.to_owned(),
            issuer: issuer.to_owned(),
            subject: subject.to_owned(),
            audiences: vec![audience.to_owned()],
            id: None,
            description: None,
        }
    }

    /// Whether a name has 3 to 120 letters, digits, `-` and `_`, a letter or digit first.
    pub fn is_valid_name(name: &str) -> bool {
        (3..=120).contains(&name.len())
            && name.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '_'))
            && name.starts_with(|first: char| first.is_ascii_alphanumeric())
    }

    /// The name of the first property with more than [`Self::MAX_TEXT`] characters.
    pub fn too_long_property(&self) -> Option<&'static str> {
        let is_long = |text: &str| text.chars().count() > Self::MAX_TEXT;
        let properties = [
            ("issuer", is_long(&self.issuer)),
            ("subject", is_long(&self.subject)),
            ("audiences", self.audiences.iter().any(|audience| is_long(audience))),
            ("description", self.description.as_deref().is_some_and(is_long)),
        ];
        properties.into_iter().find_map(|(name, is_long)| is_long.then_some(name))
    }

    /// The object id in Microsoft Graph. For a credential that was not created there, it is derived
    /// from the name and from `application`, the object id of the application.
    pub fn object_id(&self, application: Uuid) -> Uuid {
        self.id.unwrap_or_else(|| Uuid::new_v5(&application, self.name.as_bytes()))
    }
}
