//! Entra: the token service of every cloud.

mod assertion;
mod authorize;
mod certificate_chain;
mod client;
pub mod device_code;
mod discovery;
pub(crate) mod engine_errors;
pub mod error;
mod federation;
mod public_clients;
mod refresh_token;
mod sign_in_page;
mod tenant_in_path;
mod token_endpoint;
mod token_form;
pub mod token_resource;
mod user_info;
pub mod user_sign_in;
mod user_tokens;

use http::Method;
use lanyard_emulator_core::emulated_service::EmulatedService;
use lanyard_emulator_core::operation_context::OperationContext;
use lanyard_emulator_core::operations::{OperationHandler, OperationSupport, ServiceOperation};
use lanyard_emulator_state::azure_service::AzureService;
use lanyard_emulator_state::directory::{DirectoryReader, DirectoryReplica};
use lanyard_emulator_state::request::ServiceReply;

use self::discovery::EndpointVersion;
pub(crate) use self::error::TokenServiceError;

const NO_CONSENT: OperationSupport = OperationSupport::Partial(
    "every grant except on-behalf-of; permissions need no consent, and no policy demands a second \
     factor",
);

const CODES_ONLY: OperationSupport = OperationSupport::Partial(
    "the response type `code`; a person selects a user without a password, or the automatic user \
     signs in",
);

const fn operation(
    id: &'static str,
    method: Method,
    path: &'static str,
    handler: OperationHandler,
) -> ServiceOperation {
    ServiceOperation { id, method, path, support: OperationSupport::Full, handler }
}

const fn token_operation(
    id: &'static str,
    path: &'static str,
    handler: OperationHandler,
) -> ServiceOperation {
    ServiceOperation { id, method: Method::POST, path, support: NO_CONSENT, handler }
}

const fn authorize_operation(
    id: &'static str,
    method: Method,
    path: &'static str,
    handler: OperationHandler,
) -> ServiceOperation {
    ServiceOperation { id, method, path, support: CODES_ONLY, handler }
}

/// The token service.
pub const SERVICE: EmulatedService = EmulatedService {
    error_reply: engine_errors::token_service_error,
    ..EmulatedService::new(AzureService::Entra, OPERATIONS)
};

/// The operations of Entra.
const OPERATIONS: &[&[ServiceOperation]] =
    &[DISCOVERY_OPERATIONS, TOKEN_OPERATIONS, SIGN_IN_OPERATIONS];

const DISCOVERY_OPERATIONS: &[ServiceOperation] = &[
    operation("Instance_Discover", Method::GET, "/common/discovery/instance", |call| {
        reply_or_error(call, discovery::get_instance_discovery)
    }),
    operation(
        "OpenIdConfiguration_Get",
        Method::GET,
        "/{tenant}/v2.0/.well-known/openid-configuration",
        |call| {
            reply_or_error(call, |call| {
                discovery::get_openid_configuration(call, EndpointVersion::V2)
            })
        },
    ),
    operation(
        "OpenIdConfigurationV1_Get",
        Method::GET,
        "/{tenant}/.well-known/openid-configuration",
        |call| {
            reply_or_error(call, |call| {
                discovery::get_openid_configuration(call, EndpointVersion::V1)
            })
        },
    ),
    operation("Keys_List", Method::GET, "/{tenant}/discovery/v2.0/keys", |call| {
        reply_or_error(call, discovery::get_signing_keys)
    }),
    operation("KeysV1_List", Method::GET, "/{tenant}/discovery/keys", |call| {
        reply_or_error(call, discovery::get_signing_keys)
    }),
    operation("UserRealm_Get", Method::GET, "/{tenant}/userrealm/{user}", |call| {
        Ok(discovery::get_user_realm(call))
    }),
];

const TOKEN_OPERATIONS: &[ServiceOperation] = &[
    token_operation("Token_Post", "/{tenant}/oauth2/v2.0/token", |call| {
        reply_or_error(call, |call| token_endpoint::handle_token_request(call, EndpointVersion::V2))
    }),
    token_operation("TokenV1_Post", "/{tenant}/oauth2/token", |call| {
        reply_or_error(call, |call| token_endpoint::handle_token_request(call, EndpointVersion::V1))
    }),
    operation("DeviceCode_Post", Method::POST, "/{tenant}/oauth2/v2.0/devicecode", |call| {
        reply_or_error(call, device_code::start_device_flow)
    }),
];

const SIGN_IN_OPERATIONS: &[ServiceOperation] = &[
    authorize_operation("Authorize_Get", Method::GET, "/{tenant}/oauth2/v2.0/authorize", |call| {
        Ok(authorize::authorize(call))
    }),
    authorize_operation(
        "Authorize_Post",
        Method::POST,
        "/{tenant}/oauth2/v2.0/authorize",
        |call| Ok(authorize::authorize(call)),
    ),
    operation("DevicePage_Get", Method::GET, "/device", |call| {
        Ok(device_code::show_device_page(call))
    }),
    operation("DevicePage_Post", Method::POST, "/device", submit_device_page),
    operation("DeviceAuth_Get", Method::GET, "/{tenant}/oauth2/deviceauth", |call| {
        Ok(device_code::show_device_page(call))
    }),
    operation("DeviceAuth_Post", Method::POST, "/{tenant}/oauth2/deviceauth", submit_device_page),
    operation("Logout_Get", Method::GET, "/{tenant}/oauth2/v2.0/logout", |call| {
        Ok(authorize::log_out(call))
    }),
    operation("UserInfo_Get", Method::GET, "/{tenant}/openid/userinfo", user_info::get_user_info),
];

/// The directory as the token service knows it.
pub fn token_directory<'a>(call: &'a OperationContext<'_>) -> DirectoryReplica<'a> {
    call.azure().directory.replica(DirectoryReader::TokenService, call.now)
}

/// The error reply of the token service, for other services with the same format.
pub(crate) fn entra_error_reply(
    call: &mut OperationContext<'_>,
    rejection: &TokenServiceError,
) -> ServiceReply {
    let correlation = call.request.header("client-request-id");
    rejection.to_reply(call.now, correlation, call.ids)
}

fn reply_or_error(
    call: &mut OperationContext<'_>,
    handler: impl FnOnce(&mut OperationContext<'_>) -> Result<ServiceReply, TokenServiceError>,
) -> Result<ServiceReply, ServiceReply> {
    handler(call).map_err(|rejection| entra_error_reply(call, &rejection))
}

fn submit_device_page(call: &mut OperationContext<'_>) -> Result<ServiceReply, ServiceReply> {
    device_code::submit_device_page(call).map_err(|error| sign_in_page::error_page(&error))
}

#[cfg(test)]
mod tests;
