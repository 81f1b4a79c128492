//! The workload templates of the components: a file, and flags that override it, for all commands that render
//! workloads.

use std::path::PathBuf;
use std::str::FromStr;

use lanyard_desired::templates::WorkloadTemplates;
use lanyard_vocabulary::Component;
use serde_json::{Map, Value, json};

use super::go_bool::GoBool;
use super::problem_text::problem_lines;
use crate::exit::{CommandError, ExternalResult as _, ResultExt as _};

#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Workloads")]
pub(crate) struct WorkloadArgs {
    /// The workload templates, as a YAML file; without it every component is a canary
    #[arg(long, value_name = "FILE")]
    templates: Option<PathBuf>,
    /// The image of the canaries; overrides the file, as the other canary flags do
    #[arg(long, value_name = "IMAGE")]
    canary_image: Option<String>,
    /// The call of a component's canary, such as `disk=GET https://…`; an empty value disables the call; may
    /// be given for each component
    #[arg(long, value_name = "COMPONENT=CALL")]
    canary_call: Vec<CanaryCall>,
    /// The metrics port of the canaries; in the host network each component has its own port, counted from
    /// this one
    #[arg(long, value_name = "PORT")]
    canary_metrics_port: Option<u16>,
    /// Whether canaries use the host network
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true", value_name = "BOOL")]
    canary_host_network: Option<GoBool>,
}

/// The call of a component's canary.
#[derive(Debug, Clone, PartialEq, Eq)]
struct CanaryCall {
    component: Component,
    call: String,
}

impl FromStr for CanaryCall {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (component, call) = text.split_once('=').ok_or("give COMPONENT=CALL")?;
        let component: Component = component.parse().map_err(error_text)?;
        Ok(Self { component, call: call.to_owned() })
    }
}

fn error_text(error: impl std::error::Error) -> String {
    error.to_string()
}

impl WorkloadArgs {
    /// Loads the templates of the file, with the flags overriding its fields.
    pub(crate) fn load_templates(&self) -> Result<WorkloadTemplates, CommandError> {
        let (name, text) = match &self.templates {
            None => ("the flags of canaries".to_owned(), String::new()),
            Some(path) => {
                let text = std::fs::read_to_string(path)
                    .or_invalid(format_args!("--templates: {} cannot be read", path.display()))
                    .hint("give a file with --templates, or leave it out for canaries")?;
                (format!("the templates in {}", path.display()), text)
            }
        };
        WorkloadTemplates::parse_with_canary_overrides(&text, self.canary_overrides()).map_err(
            |problems| {
                let lines = problem_lines(&problems);
                CommandError::invalid_input(format!("{name} cannot be used\n\n{lines}")).with_hint(
                    "correct every field above; flags of canaries stand for fields of `canary`",
                )
            },
        )
    }

    /// Converts the flags to the fields that they override.
    fn canary_overrides(&self) -> Map<String, Value> {
        let calls: Map<_, _> = self
            .canary_call
            .iter()
            .map(|it| (it.component.name().to_owned(), json!(it.call)))
            .collect();
        let fields = [
            ("image", self.canary_image.as_ref().map(|image| json!(image))),
            ("metricsPort", self.canary_metrics_port.map(|port| json!(port))),
            ("hostNetwork", self.canary_host_network.map(|it| json!(it.0))),
            ("calls", (!calls.is_empty()).then_some(Value::Object(calls))),
        ];
        let given = fields.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?)));
        given.collect()
    }
}
