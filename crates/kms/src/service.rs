//! The two versions of the KMS API over gRPC.

mod deadline;
mod v1beta1;
mod v2;

use std::error::Error;
use std::time::Duration;

use lanyard_vocabulary::format_error_chain;
use tonic::Status;

pub(crate) use self::v1beta1::{KmsV1Service, RUNTIME_NAME, VERSION as V1_VERSION};
pub(crate) use self::v2::KmsV2Service;
use crate::error::KmsPluginError;
use crate::metrics::MeasuredOperation;
use crate::plugin::KmsPlugin;

/// The error for the API server, and a line in the log. The code is the one of the other plugins,
/// for every error: API servers tell none apart, and the text says more.
fn error_status(call: &'static str, error: &KmsPluginError) -> Status {
    let text = format_error_chain(error);
    let source: &dyn Error = error;
    tracing::warn!(call, word = error.label(), error = source, hint = error.hint(), "refused");
    match error.hint() {
        Some(hint) => Status::unknown(format!("{text} ({hint})")),
        None => Status::unknown(text),
    }
}

/// Counts a call from `began` until now.
fn record_call(
    plugin: &KmsPlugin,
    counted: MeasuredOperation,
    began: Duration,
    error: Option<&'static str>,
) {
    let took = plugin.clock().monotonic().saturating_sub(began);
    plugin.metrics().record(counted, took, error);
}
