//! The Blob service of storage accounts, and their static websites.
//!
//! Reference: Blob Storage REST API, versions 2015-02-21 to 2026-10-06 (the operations here are the same in all
//! of them). The emulator has block blobs and append blobs; it has no snapshots, versions, soft delete and page
//! blobs. A request is authenticated and authorized before anything is looked up, except that anonymous access
//! depends on the container.

mod access;
mod account_operations;
mod append_blob;
mod blob_reads;
mod blob_tags;
mod blob_upload;
mod blob_writes;
mod block_list;
mod checksum;
mod conditions;
mod container_acl;
mod container_operations;
mod copy_blob;
pub mod error;
mod http_date;
mod lease_check;
mod lease_operations;
mod list_blobs;
mod permission;
mod public_document;
mod range;
mod reply;
mod request_headers;
mod sas;
mod service_properties;
mod shared_key;
mod static_website;
mod target;
mod user_delegation;
mod user_delegation_key;
mod write_checks;
mod xml_body;
mod xml_writer;

use http::Method;
use lanyard_emulator_core::emulated_service::{EmulatedService, SMALL_BODY_BYTES};
use lanyard_emulator_core::operation_context::OperationContext;
use lanyard_emulator_core::operations::{OperationHandler, OperationSupport, ServiceOperation};
use lanyard_emulator_state::azure_service::AzureService;
use lanyard_emulator_state::request::ServiceReply;

use self::access::authorize_blob;
use self::append_blob::MAX_BLOCK_BYTES;
use self::permission::BlobPermission;

/// The Blob service.
pub const SERVICE: EmulatedService = EmulatedService {
    admit_large_body,
    error_reply: error::blob_engine_error,
    public_documents: public_document::read_public_document,
    ..EmulatedService::new(AzureService::Blob, OPERATIONS)
};

/// The static websites of storage accounts.
pub const WEBSITE_SERVICE: EmulatedService = EmulatedService {
    error_reply: error::blob_engine_error,
    ..EmulatedService::new(AzureService::StaticWebsite, WEBSITE_OPERATIONS)
};

/// The operations of the Blob service.
const OPERATIONS: &[&[ServiceOperation]] = &[ACCOUNT, CONTAINER, BLOB];

/// The maximum size of a blob, or of a piece of one, in a request: official clients upload larger blobs in blocks.
const MAX_CONTENT_BYTES: usize = 256 << 20;
/// The maximum size of a block list: Azure's 50,000 blocks with the longest ids.
const MAX_BLOCK_LIST_BYTES: usize = 8 << 20;

fn admit_large_body(
    call: &mut OperationContext<'_>,
    operation: &ServiceOperation,
) -> Result<usize, ServiceReply> {
    let (permission, most) = match operation.id {
        "BlockBlob_Upload" | "BlockBlob_StageBlock" => {
            (&BlobPermission::PUT_BLOB, MAX_CONTENT_BYTES)
        }
        "BlockBlob_CommitBlockList" => (&BlobPermission::PUT_BLOB, MAX_BLOCK_LIST_BYTES),
        "AppendBlob_AppendBlock" => (&BlobPermission::APPEND_BLOCK, MAX_BLOCK_BYTES),
        _ => return Ok(SMALL_BODY_BYTES),
    };
    authorize_blob(call, permission)?;
    Ok(most)
}

/// The operations of static websites.
const WEBSITE_OPERATIONS: &[&[ServiceOperation]] =
    &[&[full_operation("GetPage", Method::GET, "/{*path}", static_website::get_page)]];

/// A path of a container, with its conditions.
macro_rules! container {
    ($conditions:literal) => {
        concat!("/{container}?restype=container&", $conditions)
    };
}

/// A path of a blob, with its conditions. A path of one segment is a blob in the root container.
macro_rules! blob {
    ($conditions:literal) => {
        concat!("/{container}/{*blob}?!restype&", $conditions)
    };
}

const ACCOUNT: &[ServiceOperation] = &[
    full_operation(
        "Service_ListContainers",
        Method::GET,
        "/?comp=list",
        account_operations::list_containers,
    ),
    full_operation(
        "Service_GetProperties",
        Method::GET,
        "/?restype=service&comp=properties",
        service_properties::get_service_properties,
    ),
    ServiceOperation {
        id: "Service_SetProperties",
        method: Method::PUT,
        path: "/?restype=service&comp=properties",
        support: OperationSupport::Partial(
            "no CORS rules, no soft delete; analytics settings have no effect",
        ),
        handler: service_properties::set_service_properties,
    },
    full_operation(
        "Service_GetUserDelegationKey",
        Method::POST,
        "/?restype=service&comp=userdelegationkey",
        user_delegation::get_user_delegation_key,
    ),
    full_operation(
        "Service_GetAccountInfo",
        Method::GET,
        "/?restype=account&comp=properties",
        account_operations::get_account_information,
    ),
    full_operation(
        "Blob_GetAccountInfo",
        Method::GET,
        "/{container}/{*blob}?restype=account&comp=properties",
        account_operations::get_account_information,
    ),
];

const CONTAINER: &[ServiceOperation] = &[
    full_operation(
        "Container_Create",
        Method::PUT,
        container!("!comp"),
        container_operations::create_container,
    ),
    full_operation(
        "Container_GetProperties",
        Method::GET,
        container!("!comp"),
        container_operations::get_container_properties,
    ),
    full_operation(
        "Container_GetMetadata",
        Method::GET,
        container!("comp=metadata"),
        container_operations::get_container_properties,
    ),
    full_operation(
        "Container_SetMetadata",
        Method::PUT,
        container!("comp=metadata"),
        container_operations::set_container_metadata,
    ),
    full_operation(
        "Container_Delete",
        Method::DELETE,
        container!("!comp"),
        container_operations::delete_container,
    ),
    full_operation(
        "Container_GetAccessPolicy",
        Method::GET,
        container!("comp=acl"),
        container_acl::get_container_acl,
    ),
    full_operation(
        "Container_SetAccessPolicy",
        Method::PUT,
        container!("comp=acl"),
        container_acl::set_container_acl,
    ),
    full_operation(
        "Container_Lease",
        Method::PUT,
        container!("comp=lease"),
        lease_operations::lease_container,
    ),
    ServiceOperation {
        id: "Container_ListBlobs",
        method: Method::GET,
        path: container!("comp=list"),
        support: OperationSupport::Partial("no `startFrom` and `endBefore`"),
        handler: list_blobs::list_blobs,
    },
];

const BLOB: &[ServiceOperation] = &[
    full_operation("Blob_Download", Method::GET, blob!("!comp"), blob_reads::get_blob),
    full_operation("Blob_Delete", Method::DELETE, blob!("!comp"), blob_writes::delete_blob),
    full_operation(
        "Blob_CopyFromUrl",
        Method::PUT,
        blob!("!comp&[x-ms-copy-source]"),
        copy_blob::copy_blob,
    ),
    ServiceOperation {
        id: "BlockBlob_Upload",
        method: Method::PUT,
        path: blob!("!comp"),
        support: OperationSupport::Partial(
            "block blobs of at most 256 MiB, and empty append blobs",
        ),
        handler: blob_writes::put_blob,
    },
    ServiceOperation {
        id: "AppendBlob_AppendBlock",
        method: Method::PUT,
        path: blob!("comp=appendblock"),
        support: OperationSupport::Partial("no `x-ms-copy-source`"),
        handler: append_blob::append_block,
    },
    full_operation(
        "BlockBlob_StageBlockFromUrl",
        Method::PUT,
        blob!("comp=block&[x-ms-copy-source]"),
        block_list::put_block_from_url,
    ),
    full_operation("BlockBlob_StageBlock", Method::PUT, blob!("comp=block"), block_list::put_block),
    full_operation(
        "BlockBlob_CommitBlockList",
        Method::PUT,
        blob!("comp=blocklist"),
        block_list::put_block_list,
    ),
    full_operation(
        "BlockBlob_GetBlockList",
        Method::GET,
        blob!("comp=blocklist"),
        block_list::get_block_list,
    ),
    full_operation(
        "Blob_GetMetadata",
        Method::GET,
        blob!("comp=metadata"),
        blob_reads::get_blob_metadata,
    ),
    full_operation(
        "Blob_SetMetadata",
        Method::PUT,
        blob!("comp=metadata"),
        blob_writes::set_blob_metadata,
    ),
    full_operation(
        "Blob_SetHttpHeaders",
        Method::PUT,
        blob!("comp=properties"),
        blob_writes::set_blob_properties,
    ),
    ServiceOperation {
        id: "Blob_SetTier",
        method: Method::PUT,
        path: blob!("comp=tier"),
        support: OperationSupport::Partial("no tier Archive"),
        handler: blob_writes::set_blob_tier,
    },
    full_operation("Blob_GetTags", Method::GET, blob!("comp=tags"), blob_tags::get_blob_tags),
    full_operation("Blob_SetTags", Method::PUT, blob!("comp=tags"), blob_tags::set_blob_tags),
    full_operation("Blob_Lease", Method::PUT, blob!("comp=lease"), lease_operations::lease_blob),
    full_operation("Blob_AbortCopy", Method::PUT, blob!("comp=copy"), copy_blob::abort_copy),
];

const fn full_operation(
    id: &'static str,
    method: Method,
    path: &'static str,
    handler: OperationHandler,
) -> ServiceOperation {
    ServiceOperation { id, method, path, support: OperationSupport::Full, handler }
}

#[cfg(test)]
mod tests;
