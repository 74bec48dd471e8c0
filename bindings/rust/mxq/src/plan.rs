use crate::context::Context;
use crate::device::{require_places, Places};
use crate::enums::Bound;
use crate::error::{check, text, Result};
use mxq_sys as sys;
use std::ptr;

/// How a call would run: the answer of a query.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// The name of the implementation; of an expert layer one for each step, separated by ", ".
    pub implementation: String,
    /// Why none of the better ones takes the call; "" for the best one.
    pub reason: String,
    /// Bytes of device memory that the verb needs.
    pub workspace_bytes: u64,
    /// The class of bound that a product's error keeps.
    pub bound: Bound,
}

/// Makes a plan of what a query writes, where the buffers are in memory of the context's device.
pub(crate) fn plan(
    name: &str,
    context: &Context,
    places: &[(&str, Option<&Places>)],
    query: impl FnOnce(*mut *mut sys::mxq_plan) -> sys::mxq_status,
) -> Result<Plan> {
    require_places(name, context, places)?;
    let mut raw = ptr::null_mut();
    check(query(&mut raw))?;
    // SAFETY: the query succeeded, so the plan is live; its text is copied before it is destroyed.
    unsafe {
        let out = Plan {
            implementation: text(sys::mxq_plan_implementation(raw)).to_owned(),
            reason: text(sys::mxq_plan_reason(raw)).to_owned(),
            workspace_bytes: sys::mxq_plan_workspace_bytes(raw),
            bound: Bound::from_raw(sys::mxq_plan_bound(raw)).unwrap_or(Bound::None),
        };
        sys::mxq_plan_destroy(raw);
        Ok(out)
    }
}
