//! Requests to Azure Resource Manager that an operation makes while it runs.

use lanyard_emulator_state::azure_service::AzureService;
use lanyard_emulator_state::request::{ServiceReply, ServiceRequest};

use crate::emulated_service::operations::OperationLookup;
use crate::operation_context::{OperationContext, StateChange};

impl OperationContext<'_> {
    /// Runs the operation of Azure Resource Manager for another request, as if the client had sent it. `None` if
    /// the operation is not implemented.
    pub fn run_arm_request(&mut self, request: &ServiceRequest) -> Option<ServiceReply> {
        let segments = self.services.route_segments(AzureService::Arm, request);
        let routes = self.services.routes(AzureService::Arm);
        let OperationLookup::Found(operation, parameters) = routes.find(request, &segments) else {
            return None;
        };
        let mut call = OperationContext {
            request,
            endpoint: self.endpoint.clone(),
            clouds: self.clouds,
            services: self.services,
            now: self.now,
            system_now: self.system_now,
            ids: self.ids,
            work: self.work,
            request_log: self.request_log,
            caches: self.caches,
            local_url: self.local_url,
            authority: self.authority,
            parameters: &parameters,
            caller: None,
            state_change: StateChange::Unchanged,
            exclusive_write: None,
            azure: self.azure,
        };
        let reply = (operation.handler)(&mut call).unwrap_or_else(|rejection| rejection);
        self.state_change = self.state_change.max(call.state_change);
        Some(reply)
    }
}
