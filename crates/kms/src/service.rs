//! The gRPC services of both versions of the KMS API.

mod deadline;
mod v1beta1;
mod v2;

use std::error::Error;
use std::time::Duration;

use lanyard_clock::ErrorHint as _;
use lanyard_vocabulary::format_error_chain;
use tonic::Status;

pub(crate) use self::v1beta1::{KmsV1Service, RUNTIME_NAME, VERSION as V1_VERSION};
pub(crate) use self::v2::KmsV2Service;
use crate::error::KmsPluginError;
use crate::metrics::MeasuredOperation;
use crate::plugin::KmsPlugin;

/// Logs the error and converts it to a gRPC status. All errors have the code `UNKNOWN`, as in the
/// other plugins: API servers do not distinguish codes, and the message has the details.
fn error_status(call: &'static str, error: &KmsPluginError) -> Status {
    let text = format_error_chain(error);
    let source: &dyn Error = error;
    tracing::warn!(
        call,
        word = error.label(),
        error = source,
        hint = error.hint().as_deref(),
        "call failed"
    );
    match error.hint() {
        Some(hint) => Status::unknown(format!("{text} ({hint})")),
        None => Status::unknown(text),
    }
}

/// Records the duration of a call that started at `began`.
fn record_call(
    plugin: &KmsPlugin,
    counted: MeasuredOperation,
    began: Duration,
    error: Option<&'static str>,
) {
    let took = plugin.clock().monotonic().saturating_sub(began);
    plugin.metrics().record(counted, took, error);
}
