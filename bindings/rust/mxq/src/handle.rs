/// A handle of the library, which is destroyed with its owner.
///
/// The types around it have no `Drop` of their own, so that their buffers may go before them: only their use needs the buffers.
pub(crate) struct Handle<T> {
    raw: *mut T,
    destroy: Option<unsafe extern "C" fn(*mut T)>, // None: it is borrowed
}

impl<T> Handle<T> {
    pub(crate) fn owned(raw: *mut T, destroy: unsafe extern "C" fn(*mut T)) -> Handle<T> {
        Handle { raw, destroy: Some(destroy) }
    }

    pub(crate) fn borrowed(raw: *mut T) -> Handle<T> {
        Handle { raw, destroy: None }
    }

    pub(crate) fn get(&self) -> *mut T {
        self.raw
    }
}

impl<T> Drop for Handle<T> {
    fn drop(&mut self) {
        if let Some(destroy) = self.destroy {
            // SAFETY: calls borrow what has the handle, so none is using it.
            unsafe { destroy(self.raw) }
        }
    }
}
