"""Generated from proto/ by script/proto; not edited by hand."""
