//! The permissions of the operations, by kind of credential.
//!
//! Reference: "Permissions for Blob service operations" of the authorization with Microsoft Entra ID, and the
//! tables of permissions of the shared access signatures.

use lanyard_emulator_state::authorization::ActionPlane;
use lanyard_emulator_state::storage::container::PublicAccess;

/// The level of a resource in an account signature (`srt`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ResourceLevel {
    Service,
    Container,
    Object,
}

impl ResourceLevel {
    pub(super) const fn letter(self) -> char {
        match self {
            Self::Service => 's',
            Self::Container => 'c',
            Self::Object => 'o',
        }
    }
}

/// The permission of an operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct BlobPermission {
    pub(super) plane: ActionPlane,
    /// The action in role definitions.
    pub(super) action: &'static str,
    /// Another action that suffices.
    pub(super) alternative_action: Option<&'static str>,
    /// An action that suffices if the blob does not exist.
    pub(super) action_if_new: Option<&'static str>,
    pub(super) level: ResourceLevel,
    /// The letters of shared access signatures, of which any suffices.
    pub(super) sas: &'static str,
    /// The letters of which any suffices if the blob does not exist.
    pub(super) sas_if_new: &'static str,
    /// Whether a service signature suffices for an operation on a container.
    pub(super) allows_service_sas: bool,
    /// The public access that permits the operation without authentication.
    pub(super) public_access: Option<PublicAccess>,
}

macro_rules! action {
    ($rest:literal) => {
        concat!("Microsoft.Storage/storageAccounts/blobServices/", $rest)
    };
}

const fn service(action: &'static str, sas: &'static str) -> BlobPermission {
    BlobPermission {
        plane: ActionPlane::Control,
        action,
        alternative_action: None,
        action_if_new: None,
        level: ResourceLevel::Service,
        sas,
        sas_if_new: "",
        allows_service_sas: false,
        public_access: None,
    }
}

const fn container(action: &'static str, sas: &'static str) -> BlobPermission {
    BlobPermission { level: ResourceLevel::Container, ..service(action, sas) }
}

const fn object(action: &'static str, sas: &'static str) -> BlobPermission {
    BlobPermission {
        plane: ActionPlane::Data,
        level: ResourceLevel::Object,
        ..service(action, sas)
    }
}

impl BlobPermission {
    pub(super) const LIST_CONTAINERS: Self = service(action!("containers/read"), "l");
    pub(super) const GET_SERVICE_PROPERTIES: Self = service(action!("read"), "r");
    pub(super) const SET_SERVICE_PROPERTIES: Self = service(action!("write"), "w");
    pub(super) const GET_USER_DELEGATION_KEY: Self =
        service(action!("generateUserDelegationKey/action"), "");
    pub(super) const GET_ACCOUNT_INFORMATION: Self = service(action!("getInfo/action"), "r");

    pub(super) const CREATE_CONTAINER: Self = container(action!("containers/write"), "cw");
    pub(super) const DELETE_CONTAINER: Self = container(action!("containers/delete"), "d");
    pub(super) const READ_CONTAINER: Self = Self {
        public_access: Some(PublicAccess::Container),
        ..container(action!("containers/read"), "r")
    };
    pub(super) const WRITE_CONTAINER: Self = container(action!("containers/write"), "w");
    pub(super) const GET_CONTAINER_ACL: Self = container(action!("containers/getAcl/action"), "");
    pub(super) const SET_CONTAINER_ACL: Self = container(action!("containers/setAcl/action"), "");
    pub(super) const LIST_BLOBS: Self = Self {
        plane: ActionPlane::Data,
        allows_service_sas: true,
        public_access: Some(PublicAccess::Container),
        ..container(action!("containers/blobs/read"), "l")
    };

    pub(super) const READ_BLOB: Self = Self {
        public_access: Some(PublicAccess::Blob),
        ..object(action!("containers/blobs/read"), "r")
    };
    pub(super) const WRITE_BLOB: Self = object(action!("containers/blobs/write"), "w");
    /// To create a blob, or to replace an existing one.
    pub(super) const PUT_BLOB: Self = Self {
        action_if_new: Some(action!("containers/blobs/add/action")),
        sas_if_new: "c",
        ..object(action!("containers/blobs/write"), "w")
    };
    /// To extend an append blob.
    pub(super) const APPEND_BLOCK: Self = Self {
        alternative_action: Some(action!("containers/blobs/add/action")),
        ..object(action!("containers/blobs/write"), "aw")
    };
    pub(super) const DELETE_BLOB: Self = object(action!("containers/blobs/delete"), "d");
    pub(super) const LEASE_BLOB: Self = object(action!("containers/blobs/write"), "wd");
    pub(super) const READ_TAGS: Self = object(action!("containers/blobs/tags/read"), "t");
    pub(super) const WRITE_TAGS: Self = object(action!("containers/blobs/tags/write"), "t");
}
