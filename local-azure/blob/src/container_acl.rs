//! The access control list of a container: public access and stored access policies.

use std::collections::BTreeMap;

use http::StatusCode;
use lanyard_emulator_core::operation_context::OperationContext;
use lanyard_emulator_state::request::ServiceReply;
use lanyard_emulator_state::storage::container::StoredAccessPolicy;
use lanyard_emulator_state::storage::lease::LeasedResource;
use serde::Deserialize;

use super::access::authorize_container;
use super::conditions::RequestConditions;
use super::container_operations::{
    change_container, check_public_access, find_container, parse_public_access,
};
use super::error::BlobErrorCode;
use super::http_date::parse_iso_date;
use super::lease_check::check_lease_for_read;
use super::permission::BlobPermission;
use super::reply::{container_reply, with_optional_header};
use super::xml_body::parse_xml;
use super::xml_writer::XmlWriter;

/// The maximum number of stored access policies.
const MAX_POLICIES: usize = 5;

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
struct SignedIdentifiers {
    signed_identifier: Vec<SignedIdentifier>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct SignedIdentifier {
    id: String,
    #[serde(default)]
    access_policy: Option<StoredAccessPolicy>,
}

/// `GET /{container}?restype=container&comp=acl`
pub(super) fn get_container_acl(
    call: &mut OperationContext<'_>,
) -> Result<ServiceReply, ServiceReply> {
    let key = authorize_container(call, &BlobPermission::GET_CONTAINER_ACL)?;
    let container = find_container(call, &key)?;
    check_lease_for_read(call, &container.lease, LeasedResource::Container)?;
    let mut xml = XmlWriter::document();
    xml.open("SignedIdentifiers");
    for (id, policy) in &container.policies {
        xml.open("SignedIdentifier");
        xml.element("Id", id);
        xml.open("AccessPolicy");
        xml.optional_element("Start", policy.start.as_ref());
        xml.optional_element("Expiry", policy.expiry.as_ref());
        xml.optional_element("Permission", policy.permission.as_ref());
        xml.close("AccessPolicy");
        xml.close("SignedIdentifier");
    }
    xml.close("SignedIdentifiers");
    let reply = xml.into_reply(container_reply(StatusCode::OK, container));
    let access = container.public_access.header_value();
    Ok(with_optional_header(reply, "x-ms-blob-public-access", access))
}

/// `PUT /{container}?restype=container&comp=acl`
pub(super) fn set_container_acl(
    call: &mut OperationContext<'_>,
) -> Result<ServiceReply, ServiceReply> {
    let key = authorize_container(call, &BlobPermission::SET_CONTAINER_ACL)?;
    let public_access = parse_public_access(call.request)?;
    check_public_access(call, &key.host, public_access)?;
    let policies = parse_policies(&call.request.body)?;
    let container = find_container(call, &key)?;
    let conditions = RequestConditions::parse(call.request)?;
    conditions.check_write(Some((container.etag, container.last_modified)))?;
    check_lease_for_read(call, &container.lease, LeasedResource::Container)?;
    change_container(call, &key, StatusCode::OK, |container| {
        container.public_access = public_access;
        container.policies = policies;
    })
}

fn parse_policies(body: &[u8]) -> Result<BTreeMap<String, StoredAccessPolicy>, BlobErrorCode> {
    if body.is_empty() {
        return Ok(BTreeMap::new());
    }
    let given: SignedIdentifiers = parse_xml(body)?;
    if given.signed_identifier.len() > MAX_POLICIES {
        return Err(BlobErrorCode::INVALID_XML_DOCUMENT);
    }
    let mut policies = BTreeMap::new();
    for SignedIdentifier { id, access_policy } in given.signed_identifier {
        let policy = access_policy.unwrap_or_default();
        let is_date = |text: &Option<String>| {
            text.as_deref().is_none_or(|text| text.is_empty() || parse_iso_date(text).is_some())
        };
        if id.is_empty() || id.len() > 64 || !is_date(&policy.start) || !is_date(&policy.expiry) {
            return Err(BlobErrorCode::INVALID_XML_DOCUMENT);
        }
        policies.insert(id, policy);
    }
    Ok(policies)
}
