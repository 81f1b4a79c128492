//! The identity URLs of resources, which Azure Resource Manager passes to resource providers in the header
//! `x-ms-identity-url`.

use aws_lc_rs::constant_time::verify_slices_are_equal;
use jiff::Timestamp;
use lanyard_vocabulary::{ArmResourceId, EntraTenantId};
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::azure_clouds::EmulatedCloud;
use crate::id_generator::IdGenerator;
use crate::keys::RedactedText;
use crate::managed_identity_credential::CredentialDates;
use crate::request::ServiceRequest;
use crate::table::Table;

/// The version of the signature: `sigver`.
const SIGNATURE_VERSION: &str = "1.0";

/// The identity URL of a resource. Its signature entitles a resource provider to the resource's own identity.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct IdentityUrl {
    pub resource_id: ArmResourceId,
    /// The tenant of the resource's subscription.
    pub tenant: EntraTenantId,
    /// The region of the resource.
    pub location: String,
    /// The id of the resource in the service: `internal_id`.
    pub internal_id: Uuid,
    /// The id of the resource provider: `arpid`.
    provider_id: Uuid,
    /// The id of the signing key: `keyid`.
    key_id: Uuid,
    /// The signature: `sig`.
    signature: RedactedText,
    /// The time from which the URL returns no credential: `cannot_renew_after` of the last one.
    renewable_until: Timestamp,
}

impl IdentityUrl {
    fn new(
        resource_id: ArmResourceId,
        tenant: EntraTenantId,
        location: String,
        ids: &mut IdGenerator,
        now: Timestamp,
    ) -> Self {
        Self {
            resource_id,
            tenant,
            location,
            internal_id: ids.next_uuid(),
            provider_id: ids.next_uuid(),
            key_id: ids.next_uuid(),
            signature: RedactedText::new(ids.next_hex32()),
            renewable_until: CredentialDates::following(None, now).cannot_renew_after,
        }
    }

    /// The key of a resource in the table of identity URLs: its id in lower case.
    pub fn table_key(resource_id: &ArmResourceId) -> String {
        resource_id.as_str().to_ascii_lowercase()
    }

    /// The URL with its query, in a cloud.
    pub fn url(&self, cloud: &EmulatedCloud) -> String {
        let Self { resource_id, location, .. } = self;
        let query = url::form_urlencoded::Serializer::new(String::new())
            .append_pair("arpid", &self.provider_id.to_string())
            .append_pair("keyid", &self.key_id.to_string())
            .append_pair("sig", self.signature.expose())
            .append_pair("sigver", SIGNATURE_VERSION)
            .append_pair("tid", self.tenant.as_str())
            .finish();
        let base = cloud.managed_identity_url(location);
        format!("{base}{resource_id}/credentials/v2/identities?{query}")
    }

    /// Whether a request has the query of this URL.
    pub fn matches_query(&self, request: &ServiceRequest) -> bool {
        let sent = |name| request.query(name).unwrap_or_default();
        verify_slices_are_equal(self.signature.expose().as_bytes(), sent("sig").as_bytes()).is_ok()
            && sent("arpid").parse() == Ok(self.provider_id)
            && sent("keyid").parse() == Ok(self.key_id)
            && sent("sigver") == SIGNATURE_VERSION
            && sent("tid").eq_ignore_ascii_case(self.tenant.as_str())
    }

    pub fn is_renewable_at(&self, now: Timestamp) -> bool {
        now < self.renewable_until
    }

    /// Extends the URL until the end of a credential that it returned. Returns whether it changed.
    pub fn extend_to(&mut self, cannot_renew_after: Timestamp) -> bool {
        let is_later = self.renewable_until < cannot_renew_after;
        self.renewable_until = self.renewable_until.max(cannot_renew_after);
        is_later
    }

    /// The same URL for a resource that was moved to another id.
    #[must_use]
    pub fn moved_to(mut self, resource_id: ArmResourceId) -> Self {
        self.resource_id = resource_id;
        self
    }
}

/// Issues the identity URL of a resource, as Azure Resource Manager does when it forwards a PUT. A URL that
/// still returns credentials stays the same.
pub fn issue_identity_url(
    urls: &mut Table<String, IdentityUrl>,
    (resource_id, tenant, location): (ArmResourceId, EntraTenantId, String),
    ids: &mut IdGenerator,
    now: Timestamp,
) -> IdentityUrl {
    let key = IdentityUrl::table_key(&resource_id);
    let mut issued = IdentityUrl::new(resource_id, tenant, location, ids, now);
    if let Some(known) = urls.get(&key) {
        issued.internal_id = known.internal_id;
        if known.is_renewable_at(now) && known.location == issued.location {
            issued.provider_id = known.provider_id;
            issued.key_id = known.key_id;
            issued.signature = known.signature.clone();
        }
    }
    urls.insert(key, issued.clone());
    issued
}
