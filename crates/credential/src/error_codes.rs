//! The error codes of the token services: what each code means, and what its reader does next.

mod app_service;
mod entra;
mod imds;

use lanyard_clock::ErrorCodeRow;

pub use self::app_service::APP_SERVICE;
pub use self::entra::ENTRA;
pub use self::imds::IMDS;
use lanyard_clock::RetryClass;

/// A row of a token service.
type Row = ErrorCodeRow;

/// A part of the messages of IMDS and of App Service if the requested identity is not assigned.
pub(crate) const IDENTITY_NOT_FOUND: &str = "identity not found";
/// The same, for messages of App Service without a code.
pub(crate) const NO_MANAGED_IDENTITY_FOUND: &str = "managed identity found";

const THROTTLED: RetryClass = RetryClass::Throttled { after: None };
