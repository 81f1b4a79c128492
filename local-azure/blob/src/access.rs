//! Authentication and authorization of requests to the Blob service.
//!
//! A request has a signature with an account key, a shared access signature, a bearer token, or nothing.
//! Authorization precedes any look-up, except that anonymous access depends on the container. Reference:
//! "Authorize requests to Azure Storage".

use std::sync::Arc;

use jiff::Timestamp;
use lanyard_emulator_core::operation_context::OperationContext;
use lanyard_emulator_core::token::{
    AuthenticatedCaller, BearerTokenError, VerifiedTokenCache, verify_bearer,
};
use lanyard_emulator_state::authorization::{AccessCheck, ActionPlane};
use lanyard_emulator_state::azure_clouds::EmulatedCloud;
use lanyard_emulator_state::azure_state::AzureState;
use lanyard_emulator_state::request::{ServiceReply, ServiceRequest};
use lanyard_emulator_state::storage::account::StorageAccount;
use lanyard_emulator_state::storage::container::PublicAccess;
use lanyard_emulator_state::storage::store::{BlobKey, ContainerKey};

use super::error::BlobErrorCode;
use super::permission::{BlobPermission, ResourceLevel};
use super::sas::{SasError, SasGrant, has_signature, verify_sas};
use super::shared_key;
use super::target::BlobTarget;

/// The resource of tokens for every account.
pub(super) const STORAGE_RESOURCE: &str = "https://storage.azure.com";
/// Anonymous requests of this version or a later one are challenged.
const FIRST_VERSION_WITH_CHALLENGE: &str = "2019-12-12";
/// The first version that accepts bearer tokens.
const FIRST_VERSION_WITH_TOKENS: &str = "2017-11-09";

/// The authenticated caller of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum BlobCaller {
    /// A client with an account key, which permits everything.
    AccountKey,
    Sas(SasGrant),
    Principal(Arc<AuthenticatedCaller>),
    Anonymous,
}

/// A request with the state that decides on it.
#[derive(Debug, Clone, Copy)]
pub(super) struct BlobAccess<'a> {
    pub(super) azure: &'a AzureState,
    pub(super) request: &'a ServiceRequest,
    pub(super) cloud: &'a EmulatedCloud,
    pub(super) now: Timestamp,
    /// The time of the system clock, which local clients write into the dates of their requests.
    pub(super) system_now: Timestamp,
}

/// Authorizes an operation on the account, and returns the account's host name.
pub(super) fn authorize_account(
    call: &mut OperationContext<'_>,
    permission: &BlobPermission,
) -> Result<(String, BlobCaller), ServiceReply> {
    let target = BlobTarget::account(call.request);
    let caller = authorize(call, &target, permission)?;
    Ok((target.host, caller))
}

/// Authorizes an operation on the container in the path, and returns the container's key.
pub(super) fn authorize_container(
    call: &mut OperationContext<'_>,
    permission: &BlobPermission,
) -> Result<ContainerKey, ServiceReply> {
    let target = BlobTarget::container(call.request)?;
    authorize(call, &target, permission)?;
    Ok(target.container_key())
}

/// Authorizes an operation on the blob in the path, and returns the blob's key and the caller.
pub(super) fn authorize_blob(
    call: &mut OperationContext<'_>,
    permission: &BlobPermission,
) -> Result<(BlobKey, BlobCaller), ServiceReply> {
    let target = BlobTarget::blob(call.request)?;
    let caller = authorize(call, &target, permission)?;
    Ok((target.blob_key(), caller))
}

fn authorize(
    call: &mut OperationContext<'_>,
    target: &BlobTarget,
    permission: &BlobPermission,
) -> Result<BlobCaller, ServiceReply> {
    let access = BlobAccess {
        azure: call.azure,
        request: call.request,
        cloud: &call.endpoint.cloud,
        now: call.now,
        system_now: call.system_now,
    };
    let caller = access.authenticate(target, &mut call.caches.verified_tokens)?;
    let outcome = access.check_permission(target, &caller, permission);
    if let BlobCaller::Principal(principal) = &caller {
        let client = principal.app_id;
        call.record_caller(client);
    }
    outcome.map(|()| caller)
}

impl<'a> BlobAccess<'a> {
    /// The account of a target.
    fn account(&self, target: &BlobTarget) -> Result<&'a StorageAccount, ServiceReply> {
        let account = self.azure.storage.account(&target.host);
        account.ok_or_else(|| BlobErrorCode::ACCOUNT_NOT_FOUND.to_reply())
    }

    /// Verifies the credential of the request.
    pub(super) fn authenticate(
        &self,
        target: &BlobTarget,
        cache: &mut VerifiedTokenCache,
    ) -> Result<BlobCaller, ServiceReply> {
        let account = self.account(target)?;
        let version = self.version()?;
        let Some(header) = self.request.header("authorization") else {
            if !has_signature(self.request) {
                return Ok(BlobCaller::Anonymous);
            }
            let container = self.azure.storage.container(&target.container_key());
            let policy = |id: &str| container.and_then(|found| found.policies.get(id).cloned());
            let grant = verify_sas(self.request, account, target, policy, self.now);
            return grant.map(BlobCaller::Sas).map_err(|error| sas_error_reply(&error));
        };
        if let Some((scheme, parameters)) = shared_key::parse_authorization(header) {
            if !account.settings.allow_shared_key_access {
                return Err(BlobErrorCode::KEY_AUTHENTICATION_NOT_PERMITTED.to_reply());
            }
            let clocks = [self.now, self.system_now];
            shared_key::verify_signature(self.request, account, scheme, parameters, &clocks)
                .map_err(|error| authentication_failed(&error.to_string()))?;
            return Ok(BlobCaller::AccountKey);
        }
        if version < FIRST_VERSION_WITH_TOKENS {
            return Err(authentication_failed(&format!(
                "A bearer token needs the header x-ms-version: {FIRST_VERSION_WITH_TOKENS} or later."
            )));
        }
        self.verify_token(account, header, cache).map(BlobCaller::Principal)
    }

    /// The version of the request; empty if there is none.
    fn version(&self) -> Result<&'a str, ServiceReply> {
        let version = self.request.header("x-ms-version").unwrap_or_default();
        let is_valid = version.is_empty() || version.parse::<jiff::civil::Date>().is_ok();
        if is_valid { Ok(version) } else { Err(BlobErrorCode::invalid_header("x-ms-version")) }
    }

    fn verify_token(
        &self,
        account: &StorageAccount,
        header: &str,
        cache: &mut VerifiedTokenCache,
    ) -> Result<Arc<AuthenticatedCaller>, ServiceReply> {
        let audiences = self.cloud.blob_audiences(&account.host);
        let detail = match verify_bearer(self.azure, cache, Some(header), &audiences, self.now) {
            Ok(caller) if caller.tenant.as_str().eq_ignore_ascii_case(account.tenant.as_str()) => {
                return Ok(caller);
            }
            Ok(caller) => format!("Issuer validation failed. The tenant is {}.", caller.tenant),
            Err(BearerTokenError::Missing) => {
                return Err(BlobErrorCode::INVALID_AUTHENTICATION_FORMAT.to_reply());
            }
            Err(BearerTokenError::Audience { found }) => {
                format!("Audience validation failed. Audience did not match: {found}.")
            }
            Err(BearerTokenError::Lifetime) => {
                "Lifetime validation failed. The token is expired.".to_owned()
            }
            Err(error) => format!("Signature validation failed: {error}."),
        };
        let reply = BlobErrorCode::INVALID_AUTHENTICATION_INFO
            .with_detail("AuthenticationErrorDetail", detail);
        Err(self.with_challenge(reply, account))
    }

    /// Adds the challenge for clients that obtain a token. The Go client splits it at blanks.
    fn with_challenge(&self, reply: ServiceReply, account: &StorageAccount) -> ServiceReply {
        let authority = self.cloud.authority_url();
        let tenant = &account.tenant;
        reply.with_header(
            "www-authenticate",
            format!(
                "Bearer authorization_uri={authority}/{tenant}/oauth2/authorize resource_id={STORAGE_RESOURCE}"
            ),
        )
    }

    /// Rejects a caller without a permission at a target.
    pub(super) fn check_permission(
        &self,
        target: &BlobTarget,
        caller: &BlobCaller,
        permission: &BlobPermission,
    ) -> Result<(), ServiceReply> {
        let account = self.account(target)?;
        match caller {
            BlobCaller::AccountKey => Ok(()),
            BlobCaller::Sas(grant) => self.check_grant(account, target, grant, permission),
            BlobCaller::Principal(principal) => {
                self.check_roles(account, target, principal.object_id, permission)
            }
            BlobCaller::Anonymous => self.check_public_access(account, target, permission),
        }
    }

    fn check_grant(
        &self,
        account: &StorageAccount,
        target: &BlobTarget,
        grant: &SasGrant,
        permission: &BlobPermission,
    ) -> Result<(), ServiceReply> {
        if !grant.is_for_blobs {
            return Err(BlobErrorCode::SERVICE_MISMATCH.to_reply());
        }
        match &grant.resource_types {
            Some(types) if !types.contains(permission.level.letter()) => {
                return Err(BlobErrorCode::RESOURCE_TYPE_MISMATCH.to_reply());
            }
            Some(_) => {}
            None => {
                let is_in_scope = match permission.level {
                    ResourceLevel::Service => false,
                    ResourceLevel::Container => {
                        permission.allows_service_sas && !grant.is_for_one_blob
                    }
                    ResourceLevel::Object => true,
                };
                if !is_in_scope {
                    return Err(BlobErrorCode::AUTHORIZATION_FAILURE.to_reply());
                }
            }
        }
        let is_new = || self.azure.storage.blob(&target.blob_key()).is_none();
        let has_any = |letters: &str| letters.chars().any(|one| grant.permissions.contains(one));
        let is_permitted = has_any(permission.sas) || (has_any(permission.sas_if_new) && is_new());
        if !is_permitted {
            return Err(BlobErrorCode::PERMISSION_MISMATCH.to_reply());
        }
        match grant.delegator {
            None => Ok(()),
            Some(principal) => self.check_roles(account, target, principal, permission),
        }
    }

    /// Checks the role assignments of a principal.
    fn check_roles(
        &self,
        account: &StorageAccount,
        target: &BlobTarget,
        principal: uuid::Uuid,
        permission: &BlobPermission,
    ) -> Result<(), ServiceReply> {
        let scope = match &target.container {
            None => account.resource_id.clone(),
            Some(container) => account.container_scope(container),
        };
        let decide = |plane: ActionPlane, action: &str| {
            let check = AccessCheck {
                principal_id: principal,
                plane,
                action,
                scope: &scope,
                role_assignment: None,
                now: self.now,
            };
            check.decide(self.azure).map(drop).map_err(|miss| {
                BlobErrorCode::PERMISSION_MISMATCH
                    .to_reply()
                    .with_rejection_reason(format!("{action} at {scope}: {miss}"))
            })
        };
        let mut decision = decide(permission.plane, permission.action);
        if let (Err(_), Some(action)) = (&decision, permission.alternative_action) {
            decision = decide(permission.plane, action);
        }
        match permission.action_if_new {
            Some(action)
                if decision.is_err() && self.azure.storage.blob(&target.blob_key()).is_none() =>
            {
                decide(permission.plane, action)
            }
            _ => decision,
        }
    }

    fn check_public_access(
        &self,
        account: &StorageAccount,
        target: &BlobTarget,
        permission: &BlobPermission,
    ) -> Result<(), ServiceReply> {
        let version = self.version()?;
        let refuse = || {
            if version < FIRST_VERSION_WITH_CHALLENGE {
                return BlobErrorCode::RESOURCE_NOT_FOUND.to_reply();
            }
            self.with_challenge(BlobErrorCode::NO_AUTHENTICATION_INFORMATION.to_reply(), account)
        };
        let Some(needed) = permission.public_access else { return Err(refuse()) };
        if !account.settings.allow_blob_public_access {
            return Err(BlobErrorCode::PUBLIC_ACCESS_NOT_PERMITTED.to_reply());
        }
        let container = self.azure.storage.container(&target.container_key());
        let public = container.map_or(PublicAccess::None, |container| container.public_access);
        if public >= needed { Ok(()) } else { Err(refuse()) }
    }
}

fn authentication_failed(detail: &str) -> ServiceReply {
    BlobErrorCode::AUTHENTICATION_FAILED.with_detail("AuthenticationErrorDetail", detail)
}

fn sas_error_reply(error: &SasError) -> ServiceReply {
    match error {
        SasError::AuthenticationFailed(detail) => authentication_failed(detail),
        SasError::SourceIp => BlobErrorCode::IP_MISMATCH.to_reply(),
        SasError::Protocol => BlobErrorCode::PROTOCOL_MISMATCH.to_reply(),
        SasError::KeyNotPermitted => BlobErrorCode::KEY_AUTHENTICATION_NOT_PERMITTED.to_reply(),
        SasError::NotSupported(feature) => BlobErrorCode::feature_not_supported(feature),
    }
}
