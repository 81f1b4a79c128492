//! The two versions of the KMS API over gRPC.

mod deadline;
mod v1beta1;
mod v2;

use std::error::Error;
use std::time::Duration;

use lanyard_vocabulary::causes;
use tonic::Status;

pub(crate) use self::v1beta1::{RUNTIME_NAME, V1, VERSION as V1_VERSION};
pub(crate) use self::v2::V2;
use crate::error::PluginError;
use crate::metrics::Counted;
use crate::plugin::Plugin;

/// The error for the API server, and a line in the log. The code is the one of the other plugins,
/// for every error: API servers tell none apart, and the text says more.
fn refusal(call: &'static str, error: &PluginError) -> Status {
    let text = causes(error);
    let source: &dyn Error = error;
    tracing::warn!(call, word = error.word(), error = source, hint = error.hint(), "refused");
    match error.hint() {
        Some(hint) => Status::unknown(format!("{text} ({hint})")),
        None => Status::unknown(text),
    }
}

/// Counts a call from `began` until now.
fn count(plugin: &Plugin, counted: Counted, began: Duration, error: Option<&'static str>) {
    let took = plugin.clock().monotonic().saturating_sub(began);
    plugin.metrics().count(counted, took, error);
}
