//! What a service registers with the engine, and the set of registered services.

pub mod operations;

use std::any::{Any, TypeId};
use std::borrow::Cow;
use std::collections::HashMap;

use bytes::Bytes;
use http::StatusCode;
use jiff::Timestamp;
use lanyard_emulator_state::azure_clouds::AzureClouds;
use lanyard_emulator_state::azure_service::AzureService;
use lanyard_emulator_state::azure_state::AzureState;
use lanyard_emulator_state::fault_rules::ThrottlingProvider;
use lanyard_emulator_state::id_generator::IdGenerator;
use lanyard_emulator_state::request::{ServiceReply, ServiceRequest};
use lanyard_emulator_state::settings::{EmulatorSettings, SettingsError};
use serde_json::json;
use url::Url;

use self::operations::{LargeBodyAdmission, RouteTable, ServiceOperation};

/// Reads a document that the service publishes without authentication at a URL. `None` if the URL is not of the
/// service; the error is a code of the service.
pub type PublicDocumentReader =
    fn(&AzureState, &AzureClouds, &Url) -> Option<Result<Bytes, &'static str>>;

/// The maximum size of a body that is read before the operation has seen the head of its request: a token request
/// or a secret of a vault is smaller.
pub const SMALL_BODY_BYTES: usize = 64 << 10;
/// The maximum size of most other bodies.
pub const MAX_BODY_BYTES: usize = 4 << 20;

/// The operations that a crate contributes to a service of Azure, and what the engine must know about them.
///
/// A service can have several contributions. The engine searches their operations in the order of registration, and
/// the first contribution decides about segments, large bodies and the error format.
#[derive(Debug, Clone, Copy)]
pub struct EmulatedService {
    /// The service of Azure.
    pub service: AzureService,
    /// The operations. The first one that matches a request wins.
    pub operations: &'static [&'static [ServiceOperation]],
    /// Returns the segments of a request's path, as the paths of the operations match them.
    pub segments: fn(&ServiceRequest) -> Vec<Cow<'_, str>>,
    /// Admits the large bodies of the service's operations. Without it, there are none.
    pub admit_large_body: LargeBodyAdmission,
    /// Writes an error of the engine in the format of the service.
    pub error_reply: fn(EngineError<'_>) -> ServiceReply,
    /// Checks and completes the settings that the service reads.
    pub check_settings: fn(&mut EmulatorSettings) -> Result<(), SettingsError>,
    /// Reads the documents that the service publishes.
    pub public_documents: PublicDocumentReader,
}

impl EmulatedService {
    /// A service with these operations, and the error format of Azure Resource Manager and the vaults.
    pub const fn new(
        service: AzureService,
        operations: &'static [&'static [ServiceOperation]],
    ) -> Self {
        Self {
            service,
            operations,
            segments: |request| request.segments().collect(),
            admit_large_body: |_, _| Ok(SMALL_BODY_BYTES),
            error_reply: management_error_reply,
            check_settings: |_| Ok(()),
            public_documents: |_, _, _| None,
        }
    }
}

/// A failure in the engine, for which the service sends an error reply instead of the reply of an operation.
#[derive(Debug)]
pub enum EngineError<'e> {
    /// The service has no operation for the request.
    NotImplemented {
        request: &'e ServiceRequest,
        message: String,
        /// The id of the most similar operation.
        nearest: Option<&'static str>,
    },
    /// The body has more than `most` bytes.
    BodyTooLarge { most: usize },
    /// The error of a fault rule. Without a code, the one that belongs to the status.
    Injected { status: StatusCode, code: Option<&'e str>, message: &'e str },
    /// A fault rule throttles the request; the client has to wait for some seconds. The provider is that with the
    /// exceeded limit.
    Throttled { seconds: u32, provider: Option<ThrottlingProvider> },
    /// A fault rule makes the token service respond with this AADSTS code.
    TokenService { code: u32, now: Timestamp, ids: &'e mut IdGenerator },
}

/// The error format of Azure Resource Manager and the vaults: a JSON object with a code and a message, except for a
/// body that is too large, which gets plain text.
pub fn management_error_reply(error: EngineError<'_>) -> ServiceReply {
    match error {
        EngineError::NotImplemented { message, nearest, .. } => ServiceReply::json(
            StatusCode::NOT_IMPLEMENTED,
            &json!({
                "error": {
                    "code": "NotImplementedByEmulator",
                    "message": message,
                    "target": nearest,
                }
            }),
        ),
        EngineError::BodyTooLarge { most } => {
            let message = body_too_large_message(most);
            ServiceReply::text(StatusCode::PAYLOAD_TOO_LARGE, format!("{message}\n"))
        }
        EngineError::Injected { status, code, message } => {
            let code = code.unwrap_or_else(|| management_code(status));
            coded_error(status, code, message)
        }
        EngineError::Throttled { .. } => {
            coded_error(StatusCode::TOO_MANY_REQUESTS, "TooManyRequests", "Too many requests.")
        }
        EngineError::TokenService { .. } => coded_error(
            StatusCode::BAD_REQUEST,
            "BadRequest",
            "This build of the local Azure has no token service.",
        ),
    }
}

/// A reply with a code and a message in the form of Azure Resource Manager and the vaults.
pub fn coded_error(status: StatusCode, code: &str, message: &str) -> ServiceReply {
    ServiceReply::json(status, &json!({ "error": { "code": code, "message": message } }))
}

/// The text of [`EngineError::BodyTooLarge`].
pub fn body_too_large_message(most: usize) -> String {
    let (size, unit) = if most < 1 << 20 { (most >> 10, "KiB") } else { (most >> 20, "MiB") };
    format!("the body is larger than {size} {unit}")
}

fn management_code(status: StatusCode) -> &'static str {
    match status.as_u16() {
        400 => "BadRequest",
        401 => "Unauthorized",
        403 => "Forbidden",
        404 => "NotFound",
        409 => "Conflict",
        412 => "PreconditionFailed",
        429 => "TooManyRequests",
        502 => "BadGateway",
        503 => "ServiceUnavailable",
        504 => "GatewayTimeout",
        _ => "InternalServerError",
    }
}

/// Performs scheduled work.
pub type PerformWork = fn(
    &ServiceSet,
    &mut AzureState,
    &mut IdGenerator,
    Timestamp,
) -> Result<(), Box<dyn std::error::Error + Send + Sync>>;

/// Work that is due at a time, without a request. The engine performs it before the next request.
#[derive(Debug, Clone, Copy)]
pub struct ScheduledWork {
    pub is_due: fn(&AzureState, Timestamp) -> bool,
    /// Performs the work that is due. Slow. An error is logged.
    pub perform: PerformWork,
}

/// The services of a local Azure, prepared for look-ups.
#[derive(Debug)]
pub struct ServiceSet {
    services: Vec<EmulatedService>,
    /// One table for each service; without rows for those that are not registered.
    routes: HashMap<AzureService, RouteTable>,
    scheduled: Option<ScheduledWork>,
    /// What services registered for their own use, by type.
    registries: HashMap<TypeId, &'static (dyn Any + Send + Sync)>,
}

impl ServiceSet {
    /// Prepares services. Several registrations of one service add up, in their order; error format and path
    /// segments are those of the first.
    pub fn new(services: impl IntoIterator<Item = EmulatedService>) -> Self {
        let services: Vec<_> = services.into_iter().collect();
        let routes = AzureService::ALL.into_iter().map(|service| {
            let parts = services.iter().filter(|known| known.service == service);
            let rows = parts.flat_map(|part| part.operations.iter().copied().flatten());
            (service, RouteTable::new(rows))
        });
        Self { routes: routes.collect(), services, scheduled: None, registries: HashMap::new() }
    }

    /// Adds work that is due at certain times.
    #[must_use]
    pub fn with_scheduled_work(mut self, work: ScheduledWork) -> Self {
        self.scheduled = Some(work);
        self
    }

    /// Adds a value that operations find by its type, with [`Self::registry`].
    #[must_use]
    pub fn with_registry<T: Any + Send + Sync>(mut self, registry: &'static T) -> Self {
        self.registries.insert(TypeId::of::<T>(), registry);
        self
    }

    /// The registered value of a type.
    pub fn registry<T: Any>(&self) -> Option<&'static T> {
        self.registries.get(&TypeId::of::<T>())?.downcast_ref()
    }

    fn service(&self, service: AzureService) -> Option<&EmulatedService> {
        self.services.iter().find(|known| known.service == service)
    }

    /// The routes of a service; none for a service that is not registered.
    pub fn routes(&self, service: AzureService) -> &RouteTable {
        &self.routes[&service]
    }

    /// The segments of a request's path, as the routes of a service match them.
    pub(crate) fn route_segments<'r>(
        &self,
        service: AzureService,
        request: &'r ServiceRequest,
    ) -> Vec<Cow<'r, str>> {
        match self.service(service) {
            Some(known) => (known.segments)(request),
            None => request.segments().collect(),
        }
    }

    /// The admission of large bodies of a service.
    pub(crate) fn large_body_admission(&self, service: AzureService) -> LargeBodyAdmission {
        self.service(service).map_or(|_, _| Ok(SMALL_BODY_BYTES), |known| known.admit_large_body)
    }

    /// The error format of a service.
    pub fn error_format(&self, service: AzureService) -> fn(EngineError<'_>) -> ServiceReply {
        self.service(service).map_or(management_error_reply, |known| known.error_reply)
    }

    /// Checks settings, and completes names that stand for several values.
    ///
    /// # Errors
    ///
    /// Returns an error that contains the unknown name.
    pub fn check_settings(
        &self,
        mut settings: EmulatorSettings,
    ) -> Result<EmulatorSettings, SettingsError> {
        for known in &self.services {
            (known.check_settings)(&mut settings)?;
        }
        Ok(settings)
    }

    /// Reads a document that a service publishes at a URL. `None` if no service has the URL.
    pub fn public_document(
        &self,
        azure: &AzureState,
        clouds: &AzureClouds,
        url: &Url,
    ) -> Option<Result<Bytes, &'static str>> {
        self.services.iter().find_map(|known| (known.public_documents)(azure, clouds, url))
    }

    /// The work that is due at a time, if there is any.
    pub(crate) fn due_work(&self, azure: &AzureState, now: Timestamp) -> Option<ScheduledWork> {
        self.scheduled.filter(|work| (work.is_due)(azure, now))
    }
}
