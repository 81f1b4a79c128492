//! Decides about large bodies before they are read.

use lanyard_emulator_state::request::{ServiceReply, ServiceRequest};

use super::{AppliedFault, EmulatorEngine, EngineReply, RequestTrace, RoutedRequest};
use crate::emulated_service::operations::OperationLookup;
use crate::emulated_service::{EngineError, management_error_reply};
use crate::ingress::{Ingress, resolve_endpoint};
use crate::operation_context::UnlockedWork;

impl EmulatorEngine {
    /// Asks the operation of a request, whose body has not been read, how large the body may be.
    ///
    /// # Errors
    ///
    /// The reply to a request that the operation rejects, or that has no operation.
    pub fn admit_large_body(
        &self,
        request: &ServiceRequest,
        ingress: Ingress,
    ) -> Result<usize, Box<EngineReply>> {
        let began = self.clock.monotonic();
        let mut trace = RequestTrace::default();
        let place = match resolve_endpoint(&self.clouds, request, ingress) {
            Ok(place) => place,
            Err(rejection) => {
                let rejected = (rejection, AppliedFault::default());
                let reply = self.complete(self.state.lock(), request, trace, rejected, began);
                return Err(Box::new(reply));
            }
        };
        trace.service = Some(place.service);
        let mut work = UnlockedWork::new(self.keys.clone());
        let routed = RoutedRequest::new(self.services, request, place.clone());
        let mut state = self.state.lock();
        let rejection = match routed.operation {
            OperationLookup::Found(operation, parameters) => {
                let admit = self.services.large_body_admission(place.service);
                let mut call =
                    self.operation_context(&mut state, request, place, &parameters, &mut work);
                match admit(&mut call, operation) {
                    Ok(most) => return Ok(most),
                    Err(rejection) => {
                        trace.operation = Some(operation.id);
                        trace.caller = call.caller;
                        rejection
                    }
                }
            }
            OperationLookup::NotFound(_) => {
                self.run_operation(&mut state, routed, &mut trace, &mut work)
            }
        };
        let rejected = (rejection, AppliedFault::default());
        Err(Box::new(self.complete(state, request, trace, rejected, began)))
    }

    /// Rejects and records a request whose body has more than `most` bytes.
    pub(crate) fn reject_large_body(
        &self,
        request: &ServiceRequest,
        ingress: Ingress,
        most: usize,
    ) -> ServiceReply {
        let error_format = match resolve_endpoint(&self.clouds, request, ingress) {
            Ok(place) => self.services.error_format(place.service),
            Err(_) => management_error_reply,
        };
        let reply = error_format(EngineError::BodyTooLarge { most }).with_rejection_reason("body");
        self.record_rejection(request, reply)
    }
}
