package strictjson

import (
	"encoding"
	"encoding/json"
	"errors"
	"reflect"
	"strconv"
	"strings"
	"sync"
	"time"
)

// Decoder is a type with a JSON form of its own. An error that is not an [*Error] becomes one.
type Decoder interface{ DecodeStrict(v Value) error }

// Decode fills what into points to. Struct fields go by their json tags; a member that no field has, or
// spelled in another case, is refused, and so is the lack of a field that has neither omitempty nor omitzero.
// null goes into pointers only. A json.RawMessage keeps the value as it was sent. The error is nil or an
// [*Error]; into may be filled in part then.
func (v Value) Decode(into any) error {
	p := reflect.ValueOf(into)
	return planOf(p.Type().Elem())(v, p.Elem())
}

// DecodeStrict keeps the value to be decoded later.
func (v *Value) DecodeStrict(x Value) error { *v = x; return nil }

// plan decodes into values of one type.
type plan func(v Value, to reflect.Value) error

var plans sync.Map // reflect.Type → plan

func planOf(t reflect.Type) plan {
	if p, ok := plans.Load(t); ok {
		return p.(plan)
	}
	p, _ := plans.LoadOrStore(t, makePlan(t))
	return p.(plan)
}

var (
	decoderType = reflect.TypeFor[Decoder]()
	textType    = reflect.TypeFor[encoding.TextUnmarshaler]()
	timeType    = reflect.TypeFor[time.Time]()
	rawType     = reflect.TypeFor[json.RawMessage]()
)

func makePlan(t reflect.Type) plan {
	switch p := reflect.PointerTo(t); {
	case p.Implements(decoderType):
		return func(v Value, to reflect.Value) error {
			err := to.Addr().Interface().(Decoder).DecodeStrict(v)
			if err == nil {
				return nil
			}
			if _, ok := errors.AsType[*Error](err); ok {
				return err
			}
			return bad(err.Error())
		}
	case t == timeType:
		return decodeTime
	case t == rawType:
		return func(v Value, to reflect.Value) error {
			to.SetBytes([]byte(string(v.Raw())))
			return nil
		}
	case p.Implements(textType):
		return func(v Value, to reflect.Value) error {
			if v.Kind() != String {
				return wrong("a string", v)
			}
			if err := to.Addr().Interface().(encoding.TextUnmarshaler).UnmarshalText(v.d.text(v.i)); err != nil {
				return bad(err.Error())
			}
			return nil
		}
	}
	switch t.Kind() {
	case reflect.Bool:
		return func(v Value, to reflect.Value) error {
			if v.Kind() != Bool {
				return wrong("a boolean", v)
			}
			to.SetBool(v.Raw()[0] == 't')
			return nil
		}
	case reflect.String:
		return func(v Value, to reflect.Value) error {
			if v.Kind() != String {
				return wrong("a string", v)
			}
			to.SetString(string(v.d.text(v.i)))
			return nil
		}
	case reflect.Int, reflect.Int64, reflect.Int32:
		return decodeInt
	case reflect.Float64:
		return func(v Value, to reflect.Value) error {
			if v.Kind() != Number {
				return wrong("a number", v)
			}
			f, err := strconv.ParseFloat(string(v.Raw()), 64)
			if err != nil {
				return bad("is too large a number")
			}
			to.SetFloat(f)
			return nil
		}
	case reflect.Pointer:
		elem := planOf(t.Elem())
		return func(v Value, to reflect.Value) error {
			if v.Kind() == Null {
				to.SetZero()
				return nil
			}
			p := reflect.New(t.Elem())
			to.Set(p)
			return elem(v, p.Elem())
		}
	case reflect.Slice:
		return slicePlan(t)
	case reflect.Map:
		return mapPlan(t)
	case reflect.Struct:
		return structPlan(t)
	}
	panic("strictjson: cannot decode into " + t.String())
}

func wrong(want string, v Value) error {
	if v.Kind() == Null {
		return bad("must not be null; leave it out, or give " + want)
	}
	return bad("must be " + want + ", not " + v.Kind().String())
}

func decodeTime(v Value, to reflect.Value) error {
	const want = "an instant as 2026-12-01T09:00:00Z"
	if v.Kind() != String {
		return wrong(want, v)
	}
	var at time.Time
	if err := at.UnmarshalText(v.d.text(v.i)); err != nil || at.Year() < 1970 {
		return bad("must be " + want)
	}
	to.Set(reflect.ValueOf(at))
	return nil
}

func decodeInt(v Value, to reflect.Value) error {
	if v.Kind() != Number {
		return wrong("a whole number", v)
	}
	n, err := strconv.ParseInt(string(v.Raw()), 10, 64)
	if err != nil { // 1.0 and 1e3 are whole numbers too
		digits, power, _ := strings.Cut(string(appendNumber(nil, v.Raw())), "e")
		zeros, _ := strconv.Atoi(power)
		if zeros < 0 || zeros > 18 {
			return bad("must be a whole number")
		}
		n, err = strconv.ParseInt(digits+strings.Repeat("0", zeros), 10, 64)
	}
	if err != nil || to.OverflowInt(n) {
		return bad("must be a smaller whole number")
	}
	to.SetInt(n)
	return nil
}

func slicePlan(t reflect.Type) plan {
	elem := planOf(t.Elem())
	return func(v Value, to reflect.Value) error {
		if v.Kind() != Array {
			return wrong("an array", v)
		}
		list := reflect.MakeSlice(t, v.Len(), v.Len())
		for i, at := 0, v.i+1; i < list.Len(); i, at = i+1, v.d.nodes[at].next {
			if err := elem(Value{v.d, at}, list.Index(i)); err != nil {
				return At(strconv.Itoa(i), err)
			}
		}
		to.Set(list)
		return nil
	}
}

func mapPlan(t reflect.Type) plan {
	elem := planOf(t.Elem())
	return func(v Value, to reflect.Value) error {
		if v.Kind() != Object {
			return wrong("an object", v)
		}
		m := reflect.MakeMapWithSize(t, v.Len())
		for name, member := range v.Members() {
			e := reflect.New(t.Elem()).Elem()
			if err := elem(member, e); err != nil {
				return At(name, err)
			}
			m.SetMapIndex(reflect.ValueOf(name).Convert(t.Key()), e)
		}
		to.Set(m)
		return nil
	}
}

type field struct {
	name     string
	index    []int
	required bool
	plan     plan
}

func structPlan(t reflect.Type) plan {
	fields := fieldsOf(t, nil, nil)
	return func(v Value, to reflect.Value) error {
		if v.Kind() != Object {
			return wrong("an object", v)
		}
		var seen uint64
		for i, at := 0, v.i+1; i < v.Len(); i, at = i+1, v.d.nodes[at+1].next {
			name := v.d.text(at)
			k := 0
			for k < len(fields) && fields[k].name != string(name) {
				k++
			}
			if k == len(fields) {
				return At(string(name), bad("is not known here"+meant(fields, string(name))))
			}
			seen |= 1 << k
			f := &fields[k]
			into := to
			if len(f.index) == 1 {
				into = to.Field(f.index[0])
			} else {
				into = to.FieldByIndex(f.index)
			}
			if err := f.plan(Value{v.d, at + 1}, into); err != nil {
				return At(f.name, err)
			}
		}
		for k := range fields {
			if fields[k].required && seen&(1<<k) == 0 {
				return At(fields[k].name, bad("is missing"))
			}
		}
		return nil
	}
}

func meant(fields []field, name string) string {
	for _, f := range fields {
		if strings.EqualFold(f.name, name) {
			return "; write it " + f.name
		}
	}
	return ""
}

func fieldsOf(t reflect.Type, index []int, fields []field) []field {
	for i := range t.NumField() {
		f := t.Field(i)
		name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		at := append(index[:len(index):len(index)], i)
		switch {
		case name == "-" || !f.IsExported() && !f.Anonymous:
		case f.Anonymous && name == "":
			fields = fieldsOf(f.Type, at, fields)
		default:
			required := !strings.Contains(options, "omitempty") && !strings.Contains(options, "omitzero")
			fields = append(fields, field{name, at, required, planOf(f.Type)})
		}
	}
	if len(fields) > 64 {
		panic("strictjson: more than 64 fields in " + t.String())
	}
	return fields
}
