//! The nodes (virtual machines) that the metadata service describes, and which of them a request
//! comes from.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::net::IpAddr;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use lanyard_vocabulary::{ArmResourceId, Cloud, EntraClientId};
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::directory::{EntraDirectory, ServicePrincipal};
use crate::keys::RedactedText;
use crate::request::ServiceRequest;

/// The first segment of a path that names its node: `/nodes/{name}/metadata/…`.
const NODES: &str = "nodes";

/// The state of the metadata service.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct ImdsState {
    /// The node of requests that select no other node.
    #[serde(flatten)]
    pub default_node: ImdsNode,
    /// Further nodes by name.
    pub nodes: BTreeMap<String, ImdsNode>,
    /// The required value of the header `X-IDENTITY-HEADER` in the App Service protocol; without a value,
    /// that protocol issues no tokens.
    pub identity_header: Option<RedactedText>,
}

/// A node: a virtual machine with its managed identities.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct ImdsNode {
    /// The client ids of the managed identities that are assigned to the virtual machine.
    pub assigned: Vec<EntraClientId>,
    pub machine: ImdsMachine,
    /// The client addresses whose requests come from this node.
    pub client_addresses: Vec<IpAddr>,
}

/// The virtual machine that the metadata service describes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ImdsMachine {
    pub name: String,
    /// The region.
    pub location: String,
    pub subscription: String,
    pub resource_group: String,
    /// The unique id (`vmId`).
    pub id: Uuid,
    pub cloud: Cloud,
}

/// The node that a request names does not exist.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("there is no node `{name}`")]
pub struct NodeNotFound {
    pub name: String,
}

impl ImdsState {
    /// The node of a request: by the path, by the user name at the proxy, or by the address of the client, in
    /// this order.
    pub fn node_of_request(&self, request: &ServiceRequest) -> Result<&ImdsNode, NodeNotFound> {
        if let Some(name) = node_in_path(request).or_else(|| proxy_user(request).map(Cow::Owned)) {
            let node = self.nodes.get(&*name);
            return node.ok_or_else(|| NodeNotFound { name: name.into_owned() });
        }
        let bound = request.client_ip.and_then(|address| {
            self.nodes.values().find(|node| node.client_addresses.contains(&address))
        });
        Ok(bound.unwrap_or(&self.default_node))
    }
}

impl ImdsNode {
    /// The principals of the node's identities. An identity that was deleted is omitted.
    pub fn identities<'a>(&self, directory: &'a EntraDirectory) -> Vec<&'a ServicePrincipal> {
        let principal = |client: &EntraClientId| directory.service_principal_by_client_id(*client);
        self.assigned.iter().filter_map(principal).collect()
    }
}

impl ImdsMachine {
    /// The ARM id of the virtual machine.
    pub fn resource_id(&self) -> String {
        let Self { name, subscription, resource_group, .. } = self;
        format!(
            "/subscriptions/{subscription}/resourceGroups/{resource_group}/providers/\
             Microsoft.Compute/virtualMachines/{name}"
        )
    }

    /// [`Self::resource_id`] as an id, if the names are valid.
    pub fn parsed_resource_id(&self) -> Option<ArmResourceId> {
        self.resource_id().parse().ok()
    }
}

impl Default for ImdsMachine {
    fn default() -> Self {
        Self {
            name: "lanyard".to_owned(),
            location: "eastus".to_owned(),
            subscription: Uuid::nil().to_string(),
            resource_group: "lanyard".to_owned(),
            id: Uuid::nil(),
            cloud: Cloud::Public,
        }
    }
}

/// Whether `name` can be the name of a node: a DNS label, because it is also a user name in a URL.
pub fn is_valid_node_name(name: &str) -> bool {
    let is_word = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    let has_outer_hyphen = name.starts_with('-') || name.ends_with('-');
    (1..=63).contains(&name.len()) && name.chars().all(is_word) && !has_outer_hyphen
}

/// The segments of a request's path, without the leading `nodes/{name}`.
pub fn segments_without_node(request: &ServiceRequest) -> Vec<Cow<'_, str>> {
    let skipped = if node_in_path(request).is_some() { 2 } else { 0 };
    request.segments().skip(skipped).collect()
}

/// The name of the node in a path that starts with `nodes/{name}`.
fn node_in_path(request: &ServiceRequest) -> Option<Cow<'_, str>> {
    let mut segments = request.segments();
    if segments.next()? == NODES { segments.next() } else { None }
}

/// The user name of `Proxy-Authorization`, which clients send for a proxy URL with a user name.
fn proxy_user(request: &ServiceRequest) -> Option<String> {
    let (scheme, encoded) = request.header("proxy-authorization")?.split_once(' ')?;
    if !scheme.eq_ignore_ascii_case("basic") {
        return None;
    }
    let decoded = String::from_utf8(STANDARD.decode(encoded.trim()).ok()?).ok()?;
    let user = decoded.split_once(':').map_or(&*decoded, |(user, _)| user);
    (!user.is_empty()).then(|| user.to_owned())
}
