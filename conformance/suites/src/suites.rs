//! The suites, each a list of trials.

pub(crate) mod azcli;
pub(crate) mod chart;
mod client_cases;
pub(crate) mod csi;
pub(crate) mod drills;
mod etcd_client;
pub(crate) mod go;
pub(crate) mod hosted_cluster;
pub(crate) mod interop;
pub(crate) mod java_and_js;
pub(crate) mod kms;
pub(crate) mod kubernetes;
pub(crate) mod lifecycles;
pub(crate) mod measure;
pub(crate) mod measure_azure;
pub(crate) mod node;
pub(crate) mod operator;
pub(crate) mod page;
pub(crate) mod python;
pub(crate) mod requests;
pub(crate) mod rust;

use std::error::Error;
use std::fmt;

use libtest_mimic::Failed;

/// Formats an error with its causes as a trial failure.
fn failed_with_causes(error: impl Error) -> Failed {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text.push_str(": ");
        text.push_str(&cause.to_string());
        source = cause.source();
    }
    text.into()
}

/// Fails the trial unless two values are equal.
fn expect_equal<T: PartialEq + fmt::Debug>(
    what: &str,
    found: T,
    expected: T,
) -> Result<(), Failed> {
    if found == expected {
        Ok(())
    } else {
        Err(format!("{what}: expected {expected:?}, found {found:?}").into())
    }
}
