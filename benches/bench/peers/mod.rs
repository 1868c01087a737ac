//! What is measured beside the program: limits and peers, brought up by the bench itself.

pub(crate) mod click;
pub(crate) mod copy;
pub(crate) mod naive;
pub(crate) mod nchan;
pub(crate) mod own;
pub(crate) mod parse_only;
