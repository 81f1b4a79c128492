//! Mounting secrets into pods: atomic publish, retired generations, poke
