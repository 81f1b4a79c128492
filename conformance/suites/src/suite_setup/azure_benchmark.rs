//! Preparation of the benchmark of the local Azure.

use std::path::Path;
use std::sync::Arc;

use super::{PreparedSuite, SuiteArgs, SuiteSetupError};
use crate::suites::measure_azure::{self, AzureBenchmarkInputs, AzureBenchmarkScale};
use crate::toolbox::Toolbox;

/// The trials that measure the local Azure, the bare TLS server and, if it is installed, Azurite.
pub(super) fn prepare_azure_benchmark(
    arguments: &SuiteArgs,
) -> Result<PreparedSuite, SuiteSetupError> {
    let tools = Toolbox::new(&arguments.tools);
    let trials = measure_azure::trials(AzureBenchmarkInputs {
        lanyard_program: arguments.lanyard.clone(),
        hosted_cluster: arguments.hosted_cluster.clone(),
        bare_server_program: tools.program_path("bare-tls-server")?.to_path_buf(),
        azurite_script: tools.program_path("azurite-blob").ok().map(Path::to_path_buf),
        scale: AzureBenchmarkScale::for_objects(arguments.objects),
        output: arguments.measurements.clone(),
    });
    Ok(PreparedSuite { trials, keep_alive: Arc::new(()), request_log: None })
}
