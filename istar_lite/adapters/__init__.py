"""Doors for other frameworks onto one memory file; each module needs the package whose interface it speaks.

`anthropic_memory`: the memory tool of the Anthropic SDK. `openai_session`: `Session` of the OpenAI Agents SDK.
`langgraph_store`: `BaseStore` of LangGraph. They import nothing of istar-lite but the facade.
"""
