//! Preparation of the suite `page`.

use std::path::Path;
use std::sync::Arc;

use tokio::runtime::Runtime;

use super::{PreparedSuite, SuiteArgs, SuiteSetupError, load_text};
use crate::azure_target::AzureTargetError;
use crate::local_azure::LocalAzure;
use crate::suites::page::{self, PageSuiteInputs};
use crate::toolbox::Toolbox;

/// The trials of the web page, with a local Azure and a browser of their own.
pub(super) fn prepare_page_suite(
    arguments: &SuiteArgs,
    runtime: Arc<Runtime>,
) -> Result<PreparedSuite, SuiteSetupError> {
    let tools = Toolbox::new(&arguments.tools);
    let tool = |name| tools.program_path(name).map(Path::to_path_buf);
    let cluster = load_text(&arguments.hosted_cluster)?;
    let azure = LocalAzure::start(&arguments.lanyard, &cluster).map_err(AzureTargetError::from)?;
    let trials = page::trials(PageSuiteInputs {
        azure,
        chromium_program: tool("chromium")?,
        axe_script: tool("axe")?,
        screenshots: page::screenshot_directory(&arguments.lanyard),
        runtime,
    })?;
    Ok(PreparedSuite { trials, keep_alive: Arc::new(()), request_log: None })
}
